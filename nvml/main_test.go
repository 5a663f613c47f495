//go:build linux && cgo

package nvml

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		removeFake()
		os.Exit(code)
	}))
}
