package nvml

// memorySlack is how far the parts may miss the total: nvidia-smi rounds each part
// to MiB and drivers round to pages.
const memorySlack = 4 << 20

// splitMemory turns version 2 of NVML's memory figures into [Memory]. Drivers differ
// in whether used holds reserved; the one reading under which the parts add up to
// the total is right. If neither does, reserved is dropped rather than guessed at.
func splitMemory(total, used, free, reserved uint64) Memory {
	m := Memory{Total: Of(float64(total)), Used: Of(float64(used)), Free: Of(float64(free))}
	switch {
	case near(used+free+reserved, total):
		m.Reserved = Of(float64(reserved))
	case near(used+free, total) && used >= reserved:
		m.Used = Of(float64(used - reserved))
		m.Reserved = Of(float64(reserved))
	}
	return m
}

func near(a, b uint64) bool {
	if a < b {
		a, b = b, a
	}
	return a-b <= memorySlack
}
