package config

import "fmt"

// FieldError is an error about one setting.
type FieldError struct {
	Field string // path of the setting below the thing that was checked, such as lengths[1]
	Err   error  // what is wrong and what would be right
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s: %v", e.Field, e.Err) }

// Unwrap returns the cause.
func (e *FieldError) Unwrap() error { return e.Err }

// Errorf makes a FieldError.
func Errorf(field, format string, args ...any) error {
	return &FieldError{Field: field, Err: fmt.Errorf(format, args...)}
}
