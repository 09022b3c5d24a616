package files

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
)

const (
	maxWords  = 1 << 20 // that the braces of one name may expand to
	maxNested = 64
)

// expandBraces expands braces in a pattern as shells do. {a,b} stands for each alternative. {000..146} and
// {000..146..2} stand for ranges of numbers, padded with zeros to the written width if one end begins with 0. {a..e} is
// a range of letters. Braces may be nested. Braces with neither a comma nor a range, and braces behind a backslash,
// stay as they are.
func expandBraces(pattern string) ([]string, error) {
	if !strings.Contains(pattern, "{") {
		return []string{pattern}, nil
	}
	depth := 0
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '{':
			if depth++; depth > maxNested {
				return nil, pyfeed.Errorf(pyfeed.Invalid, "filenames: %.200s: expected braces nested at most %d deep, found more", pattern, maxNested)
			}
		case '}':
			depth = max(0, depth-1)
		}
	}
	words := writeOut(pattern, maxWords)
	if len(words) > maxWords {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "filenames: %.200s: expected braces that stand for at most %d names, found more", pattern, maxWords)
	}
	return words, nil
}

// writeOut returns the expansion of a pattern: at most limit words, or limit+1 to report that there are more.
func writeOut(pattern string, limit int) []string {
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' {
			i++
			continue
		}
		if pattern[i] != '{' {
			continue
		}
		parts, size := alternatives(pattern[i+1:])
		if size < 0 {
			continue
		}
		var heads []string
		if len(parts) == 1 {
			if heads = ranged(parts[0], limit); heads == nil {
				continue // braces within these may still expand
			}
		} else {
			for _, part := range parts {
				if len(heads) <= limit {
					heads = append(heads, writeOut(part, limit-len(heads))...)
				}
			}
		}
		tails := writeOut(pattern[i+1+size+1:], limit)
		words := make([]string, 0, min(len(heads)*len(tails), limit+1))
		for _, head := range heads {
			for _, tail := range tails {
				if len(words) > limit {
					return words
				}
				words = append(words, pattern[:i]+head+tail)
			}
		}
		return words
	}
	return []string{pattern}
}

// alternatives splits text at commas, up to the closing brace. It returns the parts and the position of that brace, or
// -1 if there is none.
func alternatives(text string) (parts []string, size int) {
	depth, begin := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return append(parts, text[begin:i]), i
			}
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, text[begin:i])
				begin = i + 1
			}
		}
	}
	return nil, -1
}

// ranged returns the numbers or letters of a range: at most limit, or limit+1 if there are more. nil: text is not a
// range.
func ranged(text string, limit int) []string {
	ends := strings.Split(text, "..")
	if len(ends) != 2 && len(ends) != 3 {
		return nil
	}
	step := int64(1)
	if len(ends) == 3 {
		var err error
		if step, err = strconv.ParseInt(ends[2], 10, 32); err != nil || step == 0 {
			return nil
		}
		step = max(step, -step)
	}
	form := func(n int64) string { return string(rune(n)) }
	first, last := int64(0), int64(0)
	if isLetter(ends[0]) && isLetter(ends[1]) {
		first, last = int64(ends[0][0]), int64(ends[1][0])
	} else {
		var errs [2]error
		first, errs[0] = strconv.ParseInt(ends[0], 10, 62)
		last, errs[1] = strconv.ParseInt(ends[1], 10, 62)
		if errs[0] != nil || errs[1] != nil {
			return nil
		}
		width := 0
		if isPadded(ends[0]) || isPadded(ends[1]) {
			width = max(len(ends[0]), len(ends[1]))
		}
		form = func(n int64) string { return fmt.Sprintf("%0*d", width, n) }
	}
	if first > last {
		step = -step
	}
	var all []string
	for n := first; (step > 0 && n <= last || step < 0 && n >= last) && len(all) <= limit; n += step {
		all = append(all, form(n))
	}
	return all
}

func isLetter(text string) bool {
	return len(text) == 1 && (text[0]|0x20) >= 'a' && (text[0]|0x20) <= 'z'
}

func isPadded(number string) bool {
	digits := strings.TrimLeft(number, "+-")
	return len(digits) > 1 && digits[0] == '0'
}
