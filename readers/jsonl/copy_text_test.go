package jsonl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"

	"github.com/pyfeed/pyfeed/readers/storage"
)

func TestSpecials(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var b [groupSize + 1]byte
	for round := range 20_000 {
		for i := range b {
			switch b[i] = byte(rng.Uint32()); round % 3 {
			case 0:
				b[i] = "aZ\x7f !#[]"[b[i]%8]
			case 1:
				b[i] = "\"\\\x1f\x80\xff\x00a !#[]\x7f"[b[i]%13]
			}
		}
		b[rng.IntN(len(b))] = byte(round)
		data, want := b[round%2:][:groupSize], uint64(0)
		for i, c := range data {
			if c == '"' || c == '\\' || c < ' ' || c >= utf8.RuneSelf {
				want |= 1 << i
			}
		}
		p := unsafe.Pointer(unsafe.SliceData(data))
		if found, inWords := specials(p), specialsInWords(p); found != want || inWords != want {
			t.Fatalf("%q: expected %#x, found %#x, and %#x in words", data, want, found, inWords)
		}
	}
}

// checkCopy compares copyText with text and unescape, and returns the text. The string's first byte is at p.
func checkCopy(t *testing.T, b []byte, p, room int) (text string, valid bool) {
	t.Helper()
	const guard = 0xa5
	to := bytes.Repeat([]byte{guard}, room+groupSize)
	var copies, checks scanner
	copies.interrupt, checks.interrupt = new(storage.Interrupt), new(storage.Interrupt)
	copies.pollAt, checks.pollAt = storage.PollEvery, storage.PollEvery
	end, n := copies.copyText(to[:room:room], b, p)
	if left := bytes.TrimLeft(to[room:], "\xa5"); len(left) > 0 {
		t.Fatalf("%q: bytes behind the room of %d were written", b[p:], room)
	}
	wantEnd, escaped := checks.text(b, p)
	if wantEnd >= 0 {
		text = string(b[p : wantEnd-1])
		if escaped {
			unescaped := make([]byte, len(text))
			k, err := unescape(unescaped, []byte(text), checks.interrupt)
			if err != nil {
				t.Fatal(err)
			}
			text = string(unescaped[:k])
		}
	}
	const slack = 16 // bytes that a text may be shorter than the room and yet not fit
	switch {
	case end < 0 && n < 0:
		if wantEnd >= 0 && len(text)+slack <= room {
			t.Fatalf("%q: expected that it fits into %d bytes", b[p:], room)
		}
	case end != wantEnd || end < 0 && (copies.problem != checks.problem || copies.at != checks.at):
		t.Fatalf("%q: expected %d %q at %d, found %d %q at %d", b[p:], wantEnd, checks.problem, checks.at, end, copies.problem, copies.at)
	case end >= 0 && string(to[:n]) != text:
		t.Fatalf("%q: expected %q, found %q", b[p:], text, to[:n])
	}
	return text, wantEnd >= 0
}

// Strings of all kinds of parts, at each distance from the groups in which special bytes are found and from the end.
func TestCopyText(t *testing.T) {
	parts := []string{"a", "word ", strings.Repeat("x", 31), strings.Repeat("y", 64), `\"`, `\\`, `\/`, `\n`, `\u0041`, `\u00df`, `\ud834\udd1e`,
		"é", "ß", "\u07ff", "\u0080", "東", "\u0800", "\uffff", "𝄞", "\U0010ffff", "\x7f",
		"\x80", "\xc0\x80", "\xc1\xbf", "\xc2", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", `\x`, `\ud800`, `\u12`, "\t", "\r", "\x1f"}
	const valid = 21
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 30_000 {
		var s strings.Builder
		for range rng.IntN(30) {
			s.WriteString(parts[rng.IntN(valid)])
		}
		damaged := round%4 == 0
		if damaged {
			s.WriteString(parts[valid+rng.IntN(len(parts)-valid)])
			s.WriteString(parts[rng.IntN(valid)])
		}
		line := `{"t":"` + s.String() + `"}` + "\n" + strings.Repeat("z", []int{0, 1, 70, 300}[rng.IntN(4)])
		room := s.Len() + rng.IntN(300) - 30
		text, ok := checkCopy(t, []byte(line), len(`{"t":"`), max(room, 0))
		if ok == damaged {
			t.Fatalf("%q: expected damage: %v", line, damaged)
		}
		var want struct{ T string }
		if ok {
			if err := json.Unmarshal([]byte(line[:strings.IndexByte(line, '\n')]), &want); err != nil || want.T != text {
				t.Fatalf("%q: expected %q, %v, found %q", line, want.T, err, text)
			}
		}
	}
}

// copyText accepts and returns what encoding/json does.
func FuzzCopyText(f *testing.F) {
	for _, s := range seedLines {
		f.Add([]byte(s), uint8(3), uint16(100))
		f.Add([]byte(strings.Repeat(s, 5)), uint8(200), uint16(1000))
	}
	f.Fuzz(func(t *testing.T, data []byte, behind uint8, room uint16) {
		data = bytes.ReplaceAll(data, []byte("\n"), []byte(" "))
		b := fmt.Appendf(nil, `"%s"`+"\n%s", data, strings.Repeat(`\`, int(behind)))
		text, valid := checkCopy(t, b, 1, int(room))
		end, _ := new(scanner).text(append(bytes.Clone(b[:len(data)+3]), '\n'), 1)
		if !valid || end < 0 {
			return
		}
		var want string
		if err := json.Unmarshal(b[:end], &want); err != nil || want != text {
			t.Fatalf("%q: expected %q, %v, found %q", b[:end], want, err, text)
		}
	})
}
