package nvml

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Bounds of the search through /proc.
const (
	maxProcs      = 65536
	maxSocketRows = 65536
	maxFDs        = 65536 // of one process
)

// ProcessesByPort returns the ids of the processes that listen on a local TCP port,
// and of all their descendants: the process that answers requests is rarely the one
// that holds the GPU. It reads the files of Linux's /proc below procRoot and needs the
// rights to see those of the server (the same user, or root; in a container the
// host's process ids). Nothing found is no error: the result is empty.
func ProcessesByPort(procRoot string, port uint16) ([]int, error) {
	inodes, err := listeningInodes(procRoot, port)
	if err != nil || len(inodes) == 0 {
		return nil, err
	}
	entries, err := os.ReadDir(procRoot)
	if err != nil {
		return nil, fmt.Errorf("looking for the process on port %d: %w", port, err)
	}
	found := map[int]bool{}
	children := map[int][]int{}
	for _, e := range entries[:min(len(entries), maxProcs)] {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join(procRoot, e.Name())
		if parent, ok := parentOf(dir); ok {
			children[parent] = append(children[parent], pid)
		}
		if holdsSocket(filepath.Join(dir, "fd"), inodes) {
			found[pid] = true
		}
	}
	var pids []int
	for pid := range found {
		pids = append(pids, pid)
	}
	for i := 0; i < len(pids); i++ {
		for _, c := range children[pids[i]] {
			if !found[c] {
				found[c] = true
				pids = append(pids, c)
			}
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// listeningInodes returns the socket inodes that listen on the port.
func listeningInodes(procRoot string, port uint16) (map[string]bool, error) {
	inodes := map[string]bool{}
	suffix := fmt.Sprintf(":%04X", port)
	read := 0
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(procRoot, "net", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking for the process on port %d: %w", port, err)
		}
		read++
		sc := bufio.NewScanner(f)
		for row := 0; sc.Scan() && row < maxSocketRows; row++ {
			// sl local_address rem_address st … inode is the tenth field.
			const local, state, inode = 1, 3, 9
			fields := strings.Fields(sc.Text())
			if len(fields) > inode && strings.HasSuffix(fields[local], suffix) && fields[state] == "0A" {
				inodes["socket:["+fields[inode]+"]"] = true
			}
		}
		err = sc.Err()
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("looking for the process on port %d: %s: %w", port, name, err)
		}
	}
	if read == 0 {
		return nil, fmt.Errorf("looking for the process on port %d: %s has no list of sockets (it takes Linux)", port, filepath.Join(procRoot, "net"))
	}
	return inodes, nil
}

// holdsSocket reports whether one of the open files in dir is one of the sockets. A
// directory that may not be read holds none.
func holdsSocket(dir string, inodes map[string]bool) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer func() { _ = d.Close() }()
	names, _ := d.Readdirnames(maxFDs)
	for _, n := range names {
		if target, err := os.Readlink(filepath.Join(dir, n)); err == nil && inodes[target] {
			return true
		}
	}
	return false
}

// parentOf reads the parent's id from a process' stat: the second field after the
// command's name, which is in parentheses and may hold anything.
func parentOf(dir string) (int, bool) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, false
	}
	s := string(b)
	i := strings.LastIndexByte(s, ')')
	if i < 0 {
		return 0, false
	}
	fields := strings.Fields(s[i+1:])
	if len(fields) < 2 {
		return 0, false
	}
	pid, err := strconv.Atoi(fields[1])
	return pid, err == nil && pid > 0
}

// GPUsOfProcesses returns the UUIDs of the GPUs on which one of the processes was seen
// in the last cycle, ordered by index. It is empty if per-process figures are off, or
// if the driver's process ids are those of another namespace.
func (s *Sampler) GPUsOfProcesses(pids []int) []string {
	var uuids []string
	for _, g := range s.State().Snapshot.GPUs {
		if slices.ContainsFunc(g.Processes, func(p Process) bool { return slices.Contains(pids, p.PID) }) {
			uuids = append(uuids, g.UUID)
		}
	}
	return uuids
}
