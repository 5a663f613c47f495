package engine

import (
	"strconv"
	"strings"
)

// versionBefore reports whether a version is known and lies before major.minor.
func versionBefore(version string, major, minor int) bool {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(strings.TrimRight(parts[1], "abcdefghijklmnopqrstuvwxyz-+"))
	if errA != nil || errB != nil {
		return false
	}
	return a < major || a == major && b < minor
}
