package nvml

import (
	"cmp"
	"strings"
)

// sameUUID compares UUIDs as people write them: any case, with or without "GPU-".
func sameUUID(a, b string) bool { return normalUUID(a) == normalUUID(b) }

func normalUUID(s string) string {
	return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "gpu-")
}

// compareGPU orders by index, then by UUID.
func compareGPU(a, b GPU) int {
	return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
}
