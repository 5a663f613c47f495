package nvml

import (
	"slices"
	"sync"
	"time"
)

// maxXids bounds the codes that are counted apart for each GPU.
const maxXids = 64

// watchedXids are the codes that alerts ask for: they exist at 0 from the start,
// because a series that appears with its first event shows no increase. They mean
// hardware or driver trouble; codes such as 13 and 31 are faults of applications.
func watchedXids() []uint64 { return []uint64{48, 62, 64, 74, 79, 95, 119, 120} }

// xidStore counts Xid events. It outlives the generations of the driver.
type xidStore struct {
	mu   sync.Mutex
	gpus map[string]*gpuXids
}

type gpuXids struct {
	watched bool
	xids    []Xid
}

func newXidStore() *xidStore { return &xidStore{gpus: map[string]*gpuXids{}} }

// watch notes whether events of the GPU are received.
func (s *xidStore) watch(uuid string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gpus[uuid]
	if g == nil {
		g = &gpuXids{}
		s.gpus[uuid] = g
	}
	if on && len(g.xids) == 0 {
		for _, c := range watchedXids() {
			g.xids = append(g.xids, Xid{Code: c})
		}
	}
	g.watched = on
}

// add counts one event.
func (s *xidStore) add(uuid string, code uint64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gpus[uuid]
	if g == nil {
		return
	}
	i := slices.IndexFunc(g.xids, func(x Xid) bool { return x.Code == code })
	if i < 0 && len(g.xids) >= maxXids {
		code = 0
		i = slices.IndexFunc(g.xids, func(x Xid) bool { return x.Code == 0 })
	}
	if i < 0 {
		g.xids = append(g.xids, Xid{Code: code})
		i = len(g.xids) - 1
	}
	g.xids[i].Count++
	g.xids[i].Last = at
}

// get returns a copy of what was counted for the GPU.
func (s *xidStore) get(uuid string) (watched bool, xids []Xid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gpus[uuid]
	if g == nil {
		return false, nil
	}
	return g.watched, slices.Clone(g.xids)
}
