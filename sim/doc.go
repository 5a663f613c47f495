// Package sim is a small but honest model of a continuous-batching LLM
// inference server that looks like vLLM from outside.
//
// It serves three purposes: the ground truth of tests (it records when each
// event was written), the target of the demo, and a stand-in for a server whose
// capacity, cache, acceptance rate and faults are set rather than guessed.
//
// The parts, one file each: the tokenizer, the KV block pool with its prefix
// cache, the scheduler that steps a batch in real time, the plan of an answer,
// the HTTP interface, the stream writer, the table of faults, the record of what
// left the server, and the table of metric names.
//
// Time is real: a step of 8 ms takes 8 ms. All decisions (texts, lengths, draft
// acceptance, faults by probability) come from Config.Seed and the request, so a
// run can be repeated.
package sim
