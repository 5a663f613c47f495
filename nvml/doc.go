// Package nvml reads NVIDIA GPUs at a steady rate and keeps what it read for a
// few minutes, so that a prober can ask what the GPUs did while a request ran.
//
// A [Source] delivers one [Snapshot] of all GPUs of a host: [NewLocal] reads the
// driver of this host through NVML, package nvml/remote reads the page of another
// exporter. A [Sampler] drives one Source, guards the process against a driver
// call that never returns, and publishes an immutable [State].
//
// The package knows nothing of probes or of Prometheus. It builds everywhere; a
// build without cgo, or for another system than Linux, has a local Source that
// only says so.
package nvml
