package tar

import (
	"encoding/json"
	"strconv"
)

// maxDepth is the largest depth of nested objects and arrays.
const maxDepth = 1000

// jsonScan parses one JSON text without keeping its values.
type jsonScan struct {
	b     []byte
	at    int
	depth int
	found []byte // the value at the path; of members with the same name the last one, as in Python
}

// jsonAt checks a JSON text and returns the value at a path, or nil. If ok is false, the text is not valid JSON at
// offset at. It accepts NaN and Infinity, which Python writes.
func jsonAt(b []byte, path []string) (found []byte, at int, ok bool) {
	s := jsonScan{b: b}
	ok = s.value(path, true)
	s.space()
	return s.found, s.at, ok && s.at == len(b)
}

func (s *jsonScan) space() {
	for s.at < len(s.b) {
		switch s.b[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

func (s *jsonScan) peek() byte {
	if s.at < len(s.b) {
		return s.b[s.at]
	}
	return 0
}

func (s *jsonScan) take(c byte) bool {
	if s.peek() != c || s.at >= len(s.b) {
		return false
	}
	s.at++
	return true
}

// value parses a value. wanted: the value is on the path, and path is the rest of it.
func (s *jsonScan) value(path []string, wanted bool) bool {
	s.space()
	begin := s.at
	if wanted && len(path) == 0 {
		defer func() { s.found = s.b[begin:s.at] }()
	}
	switch c := s.peek(); {
	case c == '{':
		return s.list('}', func(int) bool {
			s.space()
			key, ok := s.text()
			if !ok {
				return false
			}
			s.space()
			if !s.take(':') {
				return false
			}
			on := wanted && len(path) > 0 && same(key, path[0])
			if on {
				s.found = nil
				return s.value(path[1:], true)
			}
			return s.value(nil, false)
		})
	case c == '[':
		return s.list(']', func(i int) bool {
			if wanted && len(path) > 0 && strconv.Itoa(i) == path[0] {
				return s.value(path[1:], true)
			}
			return s.value(nil, false)
		})
	case c == '"':
		_, ok := s.text()
		return ok
	case c == '-' || c-'0' < 10:
		return s.number()
	}
	for _, word := range [...]string{"true", "false", "null", "NaN", "Infinity"} {
		if s.word(word) {
			return true
		}
	}
	return false
}

func (s *jsonScan) word(word string) bool {
	if len(s.b)-s.at < len(word) || string(s.b[s.at:s.at+len(word)]) != word {
		return false
	}
	s.at += len(word)
	return true
}

// list parses an object or an array, and counts its elements.
func (s *jsonScan) list(end byte, element func(i int) bool) bool {
	s.at++
	if s.depth++; s.depth > maxDepth {
		return false
	}
	defer func() { s.depth-- }()
	if s.space(); s.take(end) {
		return true
	}
	for i := 0; ; i++ {
		if !element(i) {
			return false
		}
		if s.space(); s.take(end) {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// text parses a string and returns it with its quotes.
func (s *jsonScan) text() ([]byte, bool) {
	begin := s.at
	if !s.take('"') {
		return nil, false
	}
	for s.at < len(s.b) {
		switch c := s.b[s.at]; {
		case c == '"':
			s.at++
			return s.b[begin:s.at], true
		case c == '\\':
			s.at++
			if s.at == len(s.b) {
				return nil, false
			}
			switch s.b[s.at] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if len(s.b)-s.at < 5 {
					return nil, false
				}
				for _, h := range s.b[s.at+1 : s.at+5] {
					if !(h-'0' < 10 || h|0x20-'a' < 6) {
						return nil, false
					}
				}
				s.at += 4
			default:
				return nil, false
			}
		case c < ' ':
			return nil, false
		}
		s.at++
	}
	return nil, false
}

func (s *jsonScan) digits() bool {
	begin := s.at
	for s.peek()-'0' < 10 {
		s.at++
	}
	return s.at > begin
}

func (s *jsonScan) number() bool {
	if s.take('-') && s.word("Infinity") {
		return true
	}
	if !s.take('0') && !s.digits() {
		return false
	}
	if s.take('.') && !s.digits() {
		return false
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		return s.digits()
	}
	return true
}

// same compares a JSON string, with its quotes, with a plain string.
func same(quoted []byte, plain string) bool {
	in := quoted[1 : len(quoted)-1]
	if string(in) == plain {
		return true
	}
	for _, c := range in {
		if c == '\\' {
			var text string
			return json.Unmarshal(quoted, &text) == nil && text == plain
		}
	}
	return false
}
