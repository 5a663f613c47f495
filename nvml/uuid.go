package nvml

import "strings"

// sameUUID compares UUIDs as people write them: any case, with or without "GPU-".
func sameUUID(a, b string) bool { return normalUUID(a) == normalUUID(b) }

func normalUUID(s string) string {
	return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "gpu-")
}
