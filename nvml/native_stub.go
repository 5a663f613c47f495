//go:build !(linux && cgo)

package nvml

import "context"

// BuiltIn reports whether this build can read the GPUs of its host.
const BuiltIn = false

// NewLocal returns a Source that only says that this build cannot read GPUs: that
// takes Linux and cgo.
func NewLocal(LocalOptions) Source { return notBuiltIn{} }

type notBuiltIn struct{}

func (notBuiltIn) Sample(context.Context) (Snapshot, error) {
	return Snapshot{}, &DownError{
		Reason: ReasonNotBuiltIn,
		Detail: "this binary was built without NVML",
		Hint:   "use a build for Linux with cgo, or read another host's exporter by its URL",
	}
}

func (notBuiltIn) Close() error { return nil }
