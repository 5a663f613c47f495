package sim

import "math/rand/v2"

// respond finds an answer other than filler: nil and false where the request
// asks for nothing particular.
func (s *Server) respond(*request, *rand.Rand) ([]piece, string, bool) { return nil, "", false }

// mediaTokens is how many prompt tokens an image or audio part takes.
func (s *Server) mediaTokens() int { return 256 }
