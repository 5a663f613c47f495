//go:build linux && cgo

package nvml

import (
	"sync"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// eventWait is how long one wait for events stays inside the driver, and so about
// how long it takes to stop.
const eventWait = 200 * time.Millisecond

// eventLoop receives Xid events in one goroutine.
type eventLoop struct {
	c      *calls
	gpus   map[gonvml.Device]string // handle to UUID
	sink   *xidStore
	logger log.Logger
	once   sync.Once // closes stop
	stop   chan struct{}
	done   chan struct{}
}

// startEvents starts the loop for the devices that are there; it returns nil where
// the library has no events.
func startEvents(c *calls, devices []*device, sink *xidStore, logger log.Logger) *eventLoop {
	wait := c.has(symEventSetWait) || c.has(symEventSetWaitV2)
	if !wait || !c.has(symEventSetCreate) || !c.has(symEventSetFree) || !c.has(symRegisterEvents) {
		return nil
	}
	e := &eventLoop{
		c: c, gpus: map[gonvml.Device]string{}, sink: sink, logger: logger,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	for _, d := range devices {
		if d.h != nil && d.lost == codeSuccess {
			e.gpus[d.h] = d.gpu.UUID
		}
	}
	go e.run()
	return e
}

// close stops the loop and waits for it, at most for limit.
func (e *eventLoop) close(limit time.Duration) bool {
	e.once.Do(func() { close(e.stop) })
	select {
	case <-e.done:
		return true
	case <-time.After(limit):
		return false
	}
}

func (e *eventLoop) finished() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

func (e *eventLoop) run() {
	defer close(e.done)
	defer func() {
		for _, uuid := range e.gpus {
			e.sink.watch(uuid, false)
		}
	}()
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		set, n := e.register()
		if n > 0 {
			began := time.Now()
			code := e.receive(set)
			if time.Since(began) > time.Minute {
				pause = time.Second
			}
			if code != codeSuccess {
				level.Debug(e.logger).Log("msg", "waiting for GPU events failed; trying again", "code", code, "in", pause)
			}
		}
		if set != nil {
			_ = set.Free()
		}
		select {
		case <-e.stop:
			return
		case <-time.After(pause):
		}
	}
}

// register makes an event set with all GPUs that accept it. A set in which a
// registration failed with UNKNOWN must be freed: it starts again without that GPU.
func (e *eventLoop) register() (gonvml.EventSet, int) {
	refused := map[gonvml.Device]bool{}
again:
	set, code := call(e.c, e.c.lib.EventSetCreate, symEventSetCreate)
	if code != codeSuccess {
		return nil, 0
	}
	n := 0
	for h, uuid := range e.gpus {
		if refused[h] || !e.reportsXids(h) {
			continue
		}
		_, code := call(e.c, func() (struct{}, gonvml.Return) {
			return struct{}{}, h.RegisterEvents(gonvml.EventTypeXidCriticalError, set)
		}, symRegisterEvents)
		e.sink.watch(uuid, code == codeSuccess)
		if code == codeUnknown {
			refused[h] = true
			_ = set.Free()
			goto again
		}
		if code == codeSuccess {
			n++
		}
	}
	return set, n
}

// reportsXids asks whether the GPU has Xid events; a library that cannot tell is
// tried.
func (e *eventLoop) reportsXids(h gonvml.Device) bool {
	types, code := call(e.c, h.GetSupportedEventTypes, symSupportedEventTypes)
	return code != codeSuccess || types&gonvml.EventTypeXidCriticalError != 0
}

// receive counts events until it is told to stop (success) or the driver refuses.
func (e *eventLoop) receive(set gonvml.EventSet) Code {
	for {
		select {
		case <-e.stop:
			return codeSuccess
		default:
		}
		began := time.Now()
		ev, code := call(e.c, func() (gonvml.EventData, gonvml.Return) {
			return set.Wait(uint32(eventWait / time.Millisecond))
		}, symEventSetWaitV2, symEventSetWait)
		switch code {
		case codeSuccess:
			if uuid, ok := e.gpus[ev.Device]; ok && ev.EventType == gonvml.EventTypeXidCriticalError {
				e.sink.add(uuid, ev.EventData, time.Now())
				level.Warn(e.logger).Log("msg", "Xid event", "uuid", uuid, "xid", ev.EventData)
			}
		case codeTimeout:
			// A driver that does not wait must not make this a busy loop.
			if left := eventWait - time.Since(began); left > eventWait/2 {
				select {
				case <-e.stop:
				case <-time.After(left):
				}
			}
		default:
			return code
		}
	}
}
