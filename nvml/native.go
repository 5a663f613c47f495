//go:build linux && cgo

package nvml

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log/level"
)

// BuiltIn reports whether this build can read the GPUs of its host.
const BuiltIn = true

// NewLocal returns the Source that reads the GPUs of this host through NVML. It
// touches nothing before the first Sample. After an error it starts anew at the
// next Sample, so a driver that comes later is found without a restart.
//
// NVML keeps its state per process: use one local Source at a time.
func NewLocal(o LocalOptions) Source {
	o = o.withDefaults()
	return &local{opts: o, xids: newXidStore(), wraps: wraps{}, known: map[string]GPU{}}
}

// local is the NVML Source.
type local struct {
	opts LocalOptions
	busy sync.Mutex // held while inside the driver

	gen   *generation
	stuck *eventLoop // of an earlier generation, not yet out of the driver
	xids  *xidStore
	wraps wraps
	known map[string]GPU // every GPU that was ever seen, by UUID: a lost one keeps its identity
}

// generation is what lives from one nvmlInit to its nvmlShutdown.
type generation struct {
	c        *calls
	driver   Driver
	opened   time.Time
	devices  []*device
	events   *eventLoop
	lastSlow time.Time
}

// reopenAfter is how long NVML is kept open while no GPU can be read.
const reopenAfter = 30 * time.Second

// errBusy is returned when an earlier call has not come back from the driver.
var errBusy = errors.New("an earlier driver call has not returned")

// Sample implements Source.
func (l *local) Sample(ctx context.Context) (Snapshot, error) {
	if !l.busy.TryLock() {
		return Snapshot{}, &DownError{Reason: ReasonTimeout, Detail: errBusy.Error(), Hint: hintWedged}
	}
	defer l.busy.Unlock()
	if l.gen == nil {
		if err := l.open(); err != nil {
			return Snapshot{}, err
		}
	}
	s, err := l.cycle(ctx)
	var down *DownError
	if errors.As(err, &down) || err == nil && allLost(s) && time.Since(l.gen.opened) > reopenAfter {
		_ = l.teardown()
	}
	return s, err
}

func allLost(s Snapshot) bool {
	for i := range s.GPUs {
		if s.GPUs[i].Lost == "" {
			return false
		}
	}
	return true
}

// Close implements Source. It leaves the driver alone when a call is still inside.
func (l *local) Close() error {
	if !l.busy.TryLock() {
		return errBusy
	}
	defer l.busy.Unlock()
	return l.teardown()
}

// open starts a generation.
func (l *local) open() error {
	if l.stuck != nil {
		if !l.stuck.finished() {
			return &DownError{Reason: ReasonTimeout, Detail: "the wait for GPU events has not returned", Hint: hintWedged}
		}
		l.stuck = nil
	}
	c, err := openCalls(l.opts.LibraryPath)
	if err != nil {
		return err
	}
	l.gen = &generation{c: c, driver: c.driver(), opened: time.Now()}
	if err := l.enumerate(); err != nil {
		_ = l.teardown()
		return err
	}
	l.startEvents()
	return nil
}

// teardown ends the generation. An event loop that does not come out of the driver
// keeps the library open: shutting it down under a running call is undefined.
func (l *local) teardown() error {
	g := l.gen
	if g == nil {
		return nil
	}
	l.gen = nil
	if g.events != nil && !g.events.close(2*time.Second) {
		l.stuck = g.events
		return errBusy
	}
	for _, d := range g.devices {
		d.close()
	}
	if code := g.c.shutdown(); code != codeSuccess {
		return fmt.Errorf("nvmlShutdown returned %s (%d)", code, int(code))
	}
	return nil
}

// startEvents starts the event loop anew, with the devices that are there now.
func (l *local) startEvents() {
	g := l.gen
	if l.opts.NoEvents {
		return
	}
	if g.events != nil && !g.events.close(2*time.Second) {
		return // still inside the driver: the old loop goes on when it comes out
	}
	g.events = startEvents(g.c, g.devices, l.xids, l.opts.Logger)
}

// enumerate finds the devices. Ones that refuse a handle are left out; ones that
// were seen before and are lost now keep their place.
func (l *local) enumerate() error {
	g := l.gen
	n, code := g.c.deviceCount()
	if code != codeSuccess {
		return downError("nvmlDeviceGetCount", code)
	}
	found := map[string]bool{}
	refused := codeGPUNotFound
	for i := range min(n, MaxGPUs) {
		d, code := openDevice(g.c, i)
		if code.class() == classDown {
			return downError("nvmlDeviceGetHandleByIndex", code)
		}
		if code != codeSuccess {
			refused = code
			level.Debug(l.opts.Logger).Log("msg", "GPU left out", "index", i, "code", code)
			continue
		}
		if found[d.gpu.UUID] || l.excluded(d.gpu.UUID) {
			continue
		}
		found[d.gpu.UUID] = true
		l.known[d.gpu.UUID] = d.gpu
		g.devices = append(g.devices, d)
	}
	for uuid, gpu := range l.known {
		if !found[uuid] && len(g.devices) < MaxGPUs {
			g.devices = append(g.devices, &device{c: g.c, gpu: gpu, lost: refused})
		}
	}
	if len(g.devices) == 0 {
		return downError(fmt.Sprintf("looking for a usable GPU among %d", n), refused)
	}
	slices.SortFunc(g.devices, func(a, b *device) int { return cmp.Compare(a.gpu.Index, b.gpu.Index) })
	return nil
}

func (l *local) excluded(uuid string) bool {
	for _, x := range l.opts.Exclude {
		if sameUUID(x, uuid) {
			return true
		}
	}
	return false
}

// cycle reads all devices once.
func (l *local) cycle(ctx context.Context) (Snapshot, error) {
	g := l.gen
	now := time.Now()
	slow := now.Sub(g.lastSlow) >= l.opts.SlowEvery
	if slow {
		g.lastSlow = now
		if l.findLost() {
			l.startEvents()
		}
	}
	snap := Snapshot{Time: now, Driver: g.driver, GPUs: make([]Sample, 0, len(g.devices))}
	for _, d := range g.devices {
		if ctx.Err() != nil {
			return Snapshot{}, fmt.Errorf("reading the GPUs: %w", context.Cause(ctx))
		}
		s, code := d.sample(l, slow)
		if code.class() == classDown {
			return Snapshot{}, downError("reading GPU "+d.gpu.UUID, code)
		}
		s.XidsWatched, s.Xids = l.xids.get(d.gpu.UUID)
		snap.GPUs = append(snap.GPUs, s)
	}
	return snap, nil
}

// findLost asks for new handles of lost GPUs and reports whether one came back.
func (l *local) findLost() bool {
	g := l.gen
	back := false
	for i, d := range g.devices {
		if d.lost == codeSuccess {
			continue
		}
		fresh, code := openDevice(g.c, d.gpu.Index)
		if code == codeSuccess && fresh.gpu.UUID == d.gpu.UUID {
			d.close()
			g.devices[i] = fresh
			back = true
		}
	}
	return back
}

const hintWedged = "a driver call hangs (does nvidia-smi hang too?): look for Xid messages in the kernel log; the GPU needs a reset or the host a reboot"
