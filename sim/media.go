package sim

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	_ "image/jpeg" // the decoders that image.Decode finds
	_ "image/png"
	"math/rand/v2"
	"strings"
)

const (
	maxImagePixels = 32 << 20
	visionGrid     = 160 // images are looked at in at most this many rows and columns
)

// mediaTokens is how many prompt tokens an image, audio or video part takes.
func (s *Server) mediaTokens() int { return s.cfg.Skills.TokensPerMedia }

// mediaParts are the media of all messages.
func (r *request) mediaParts() []contentPart {
	var out []contentPart
	for _, m := range r.Messages {
		for _, p := range m.Content {
			if p.media != "" {
				out = append(out, p)
			}
		}
	}
	return out
}

// kind is image, audio or video.
func (p contentPart) kind() string {
	for _, kind := range []string{"image", "audio", "video"} {
		if strings.Contains(p.Type, kind) {
			return kind
		}
	}
	return "text"
}

func (r *request) mediaKinds() []string {
	var out []string
	for _, p := range r.mediaParts() {
		out = append(out, p.kind())
	}
	return out
}

// bytes is the media's content where it stands in the request.
func (p contentPart) bytes() []byte {
	var part struct {
		ImageURL   struct{ URL string }  `json:"image_url"`
		AudioURL   struct{ URL string }  `json:"audio_url"`
		InputAudio struct{ Data string } `json:"input_audio"`
	}
	if json.Unmarshal([]byte(strings.TrimPrefix(p.media, p.Type)), &part) != nil {
		return nil
	}
	data := part.InputAudio.Data
	for _, url := range []string{part.ImageURL.URL, part.AudioURL.URL} {
		if _, b64, ok := strings.Cut(url, ";base64,"); ok {
			data = b64
		}
	}
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil
	}
	return b
}

// describeMedia says what is in the pictures (coloured shapes on a plain
// ground) and how many tones a WAV holds.
func describeMedia(s *Server, r *request, rng *rand.Rand) ([]piece, string, bool) {
	var seen []string
	for _, p := range r.mediaParts() {
		var text string
		switch p.kind() {
		case "image":
			text = describeImage(p.bytes())
		case "audio":
			text = describeAudio(p.bytes())
		}
		if text == "" {
			text = "something I cannot make out"
		}
		if rng.Float64() >= s.cfg.Skills.MediaAccuracy {
			text = "a pink hexagon"
		}
		seen = append(seen, text)
	}
	if seen == nil {
		return nil, "", false
	}
	text := "I perceive " + strings.Join(seen, "; then ") + "."
	return textPieces(text, fieldContent), finishStop, true
}

func describeImage(data []byte) string {
	cfg, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || cfg.Width*cfg.Height > maxImagePixels {
		return ""
	}
	img, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return ""
	}
	g := newColourGrid(img)
	var shapes []string
	for {
		shape, ok := g.takeShape()
		if !ok {
			break
		}
		if shape != "" {
			shapes = append(shapes, shape)
		}
	}
	if shapes == nil {
		return "a plain " + g.ground + " ground"
	}
	return strings.Join(shapes, ", ") + " on a " + g.ground + " ground"
}

// colourGrid is an image as colour names; what was looked at becomes ground.
type colourGrid struct {
	w, h   int
	cells  []string
	ground string
}

func newColourGrid(img image.Image) *colourGrid {
	b := img.Bounds()
	step := max(1, (max(b.Dx(), b.Dy())+visionGrid-1)/visionGrid)
	g := &colourGrid{w: (b.Dx() + step - 1) / step, h: (b.Dy() + step - 1) / step}
	for y := range g.h {
		for x := range g.w {
			r, gr, bl, _ := img.At(b.Min.X+x*step, b.Min.Y+y*step).RGBA()
			g.cells = append(g.cells, colourName(int(r>>8), int(gr>>8), int(bl>>8)))
		}
	}
	if len(g.cells) > 0 {
		g.ground = g.cells[0]
	}
	return g
}

// colourName is the nearest of eleven common colours.
func colourName(r, g, b int) string {
	best, distance := "", 1<<30
	for _, c := range []struct {
		name    string
		r, g, b int
	}{
		{"black", 0, 0, 0},
		{"white", 255, 255, 255},
		{"gray", 128, 128, 128},
		{"red", 220, 30, 30},
		{"green", 30, 160, 50},
		{"blue", 30, 60, 220},
		{"yellow", 250, 220, 30},
		{"orange", 250, 140, 20},
		{"purple", 130, 40, 160},
		{"cyan", 0, 200, 220},
		{"brown", 130, 75, 30},
	} {
		if d := (r-c.r)*(r-c.r) + (g-c.g)*(g-c.g) + (b-c.b)*(b-c.b); d < distance {
			best, distance = c.name, d
		}
	}
	return best
}

// takeShape finds the next connected area of one colour, names it by how much
// of its bounding box it fills (square 1, circle π/4, triangle 1/2), and wipes
// it out. Specks have an empty name.
func (g *colourGrid) takeShape() (string, bool) {
	start := 0
	for start < len(g.cells) && g.cells[start] == g.ground {
		start++
	}
	if start == len(g.cells) {
		return "", false
	}
	colour, area := g.cells[start], 0
	x0, y0, x1, y1 := g.w, g.h, 0, 0
	g.cells[start] = g.ground
	for todo := []int{start}; len(todo) > 0; area++ {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		x, y := at%g.w, at/g.w
		x0, y0, x1, y1 = min(x0, x), min(y0, y), max(x1, x), max(y1, y)
		for _, d := range [][2]int{{1, 0}, {-1, 0}, {0, 1}, {0, -1}} {
			nx, ny := x+d[0], y+d[1]
			if next := ny*g.w + nx; nx >= 0 && ny >= 0 && nx < g.w && ny < g.h && g.cells[next] == colour {
				g.cells[next] = g.ground
				todo = append(todo, next)
			}
		}
	}
	if area*400 < g.w*g.h {
		return "", true
	}
	w, h := x1-x0+1, y1-y0+1
	name := "triangle"
	switch fill := float64(area) / float64(w*h); {
	case fill > 0.92 && max(w, h)*10 > min(w, h)*12:
		name = "rectangle"
	case fill > 0.92:
		name = "square"
	case fill > 0.66:
		name = "circle"
	}
	return "a " + colour + " " + name, true
}

// describeAudio counts the tones of a 16-bit PCM WAV: stretches of sound apart
// by at least 50 ms of silence.
func describeAudio(data []byte) string {
	if len(data) < 44 || string(data[:4]) != "RIFF" {
		return ""
	}
	at := bytes.Index(data, []byte("data"))
	if at < 0 || at+8 > len(data) {
		return ""
	}
	rate := int(binary.LittleEndian.Uint32(data[24:28])) * max(1, int(binary.LittleEndian.Uint16(data[22:24])))
	samples := data[at+8:]
	tones, quiet := 0, rate
	for i := 0; i+1 < len(samples); i += 2 {
		v := int(int16(binary.LittleEndian.Uint16(samples[i:])))
		if v > 1000 || v < -1000 {
			if quiet*20 > rate {
				tones++
			}
			quiet = 0
		} else {
			quiet++
		}
	}
	if tones == 1 {
		return "one tone (1 beep)"
	}
	return fmt.Sprintf("%d tones (%d beeps)", tones, tones)
}
