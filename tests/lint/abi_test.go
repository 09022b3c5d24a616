package lint

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A header holds the declarations of pyfeed.h that become part of compiled programs, by name. Their form does not depend
// on comments, line breaks or the names of parameters.
type header struct {
	functions, types, constants map[string]string
	structs                     map[string][]string // their fields, in order
}

var (
	function   = regexp.MustCompile(`PF_API ([^;(]*?)(\w+) ?\(([^;]*)\);`)
	structure  = regexp.MustCompile(`typedef struct (\w+) \{(.*?)\} \w+;`)
	enum       = regexp.MustCompile(`\benum \{(.*?)\};`)
	typedef    = regexp.MustCompile(`typedef ([^;{]*?)(\w+);`)
	callback   = regexp.MustCompile(`typedef ([^;{(]*)\(\*(\w+)\)\(([^;]*)\);`)
	definition = regexp.MustCompile(`^#define (PF_\w+)[ \t]+(.*)$`)
)

// notCompared matches the definitions on which compiled programs do not depend: PF_VERSION, PF_API and the initialisers.
var notCompared = regexp.MustCompile(`^PF_(VERSION|API|\w+_INIT)$`)

func parseHeader(text string) header {
	h := header{map[string]string{}, map[string]string{}, map[string]string{}, map[string][]string{}}
	var rest strings.Builder // all lines except directives
	for line := range strings.Lines(strings.ReplaceAll(withoutComments(text), "\\\n", " ")) {
		if !strings.HasPrefix(line, "#") {
			rest.WriteString(line)
		} else if m := definition.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil && !notCompared.MatchString(m[1]) {
			h.constants[m[1]] = strings.TrimSpace(m[2])
		}
	}
	text = strings.Join(strings.Fields(rest.String()), " ")
	for _, m := range function.FindAllStringSubmatch(text, -1) {
		h.functions[m[2]] = m[1] + "(" + parameterTypes(m[3]) + ")"
	}
	for _, m := range structure.FindAllStringSubmatch(text, -1) {
		h.structs[m[1]] = fields(m[2])
	}
	for _, m := range enum.FindAllStringSubmatch(text, -1) {
		for _, value := range strings.Split(m[1], ",") {
			if name, value, found := strings.Cut(value, "="); found {
				h.constants[strings.TrimSpace(name)] = strings.TrimSpace(value)
			}
		}
	}
	for _, m := range callback.FindAllStringSubmatch(text, -1) {
		h.types[m[2]] = m[1] + "(*)(" + parameterTypes(m[3]) + ")"
	}
	for _, m := range typedef.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[1], "(") && !strings.HasPrefix(m[1], "struct ") {
			h.types[m[2]] = strings.TrimSpace(m[1])
		}
	}
	return h
}

// withoutComments takes less time than a regular expression.
func withoutComments(text string) string {
	var all strings.Builder
	for text != "" {
		before, after, found := strings.Cut(text, "/")
		all.WriteString(before)
		switch {
		case !found:
			return all.String()
		case strings.HasPrefix(after, "*"):
			_, text, _ = strings.Cut(after[1:], "*/")
		case strings.HasPrefix(after, "/"):
			_, text, _ = strings.Cut(after, "\n")
			all.WriteByte('\n')
		default:
			all.WriteByte('/')
			text = after
		}
	}
	return all.String()
}

var lastName = regexp.MustCompile(`\b\w+$`)

// parameterTypes returns a parameter list without the names. It requires that a parameter that is a function pointer has
// no comma in its own parameter list.
func parameterTypes(list string) string {
	var types []string
	for _, p := range strings.Split(list, ",") {
		p = strings.TrimSpace(p)
		if result, rest, is := strings.Cut(p, "(*"); is {
			_, inner, _ := strings.Cut(rest, ")(")
			types = append(types, result+"(*)("+parameterTypes(strings.TrimSuffix(inner, ")"))+")")
			continue
		}
		if strings.ContainsAny(p, " *") {
			p = strings.TrimSpace(lastName.ReplaceAllString(p, ""))
		}
		types = append(types, p)
	}
	return strings.Join(types, ", ")
}

// fields returns the declarations of a struct's fields, one string for each field.
func fields(body string) (all []string) {
	for _, f := range strings.Split(body, ";") {
		f = strings.TrimSpace(f)
		kind, names, several := strings.Cut(f, " ")
		switch {
		case f == "":
		case several && strings.Contains(names, ",") && !strings.Contains(f, "("):
			for _, name := range strings.Split(names, ",") {
				all = append(all, kind+" "+strings.TrimSpace(name))
			}
		default:
			all = append(all, f)
		}
	}
	return all
}

// sized is the first field of every struct that may grow.
const sized = "uint32_t size"

// changes returns the differences that a program compiled with the older header would find in the newer one.
func changes(older, newer header) (all []string) {
	compare := func(what string, older, newer map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(older)) {
			if now, there := newer[name]; !there {
				all = append(all, fmt.Sprintf("%s %s is gone", what, name))
			} else if now != older[name] {
				all = append(all, fmt.Sprintf("%s %s was %s, is %s", what, name, older[name], now))
			}
		}
	}
	compare("function", older.functions, newer.functions)
	compare("type", older.types, newer.types)
	compare("constant", older.constants, newer.constants)
	for _, name := range slices.Sorted(maps.Keys(older.structs)) {
		was, is := older.structs[name], newer.structs[name]
		for i, field := range was {
			if i >= len(is) || is[i] != field {
				all = append(all, fmt.Sprintf("struct %s: field %d was %s", name, i, field))
				break
			}
		}
		if len(is) > len(was) && was[0] != sized {
			all = append(all, fmt.Sprintf("struct %s has no size, and has grown", name))
		}
	}
	return all
}

// Once a release is out, its header in tests/abi never changes. Until then the header is a copy of pyfeed.h, which is
// renewed with each change.
func TestNothingThatAReleaseHadIsChanged(t *testing.T) {
	frozen, err := filepath.Glob(filepath.Join(root, "tests/abi/pyfeed-*.h"))
	if err != nil || len(frozen) == 0 {
		t.Fatalf("found no header in tests/abi: %v", err)
	}
	now := parseHeader(read(t, "capi/pyfeed.h"))
	for _, path := range frozen {
		name := filepath.Base(path)
		older := parseHeader(read(t, "tests/abi/"+name))
		if len(older.functions) < 90 || len(older.constants) < 60 || len(older.structs) < 15 || len(older.types) < 4 {
			t.Errorf("%s: found only %d functions, %d constants, %d structs and %d types", name, len(older.functions),
				len(older.constants), len(older.structs), len(older.types))
		}
		for _, change := range changes(older, now) {
			t.Errorf("%s: %s", name, change)
		}
	}
}

func TestChangesOfAHeaderAreFound(t *testing.T) {
	text := read(t, "capi/pyfeed.h")
	older := parseHeader(text)
	if found := changes(older, parseHeader(text)); len(found) > 0 {
		t.Errorf("found %v between the header and itself", found)
	}
	for name, change := range map[string]struct{ from, to, want string }{
		"a value":               {"PF_CORRUPT = 18", "PF_CORRUPT = 21", "PF_CORRUPT"},
		"a constant gone":       {"    PF_UINT8 = 6,\n", "", "PF_UINT8"},
		"a definition":          {"#define PF_MAX_RANK 8", "#define PF_MAX_RANK 9", "PF_MAX_RANK"},
		"a first size":          {"#define PF_TUPLE_SIZE_V1 24", "#define PF_TUPLE_SIZE_V1 32", "PF_TUPLE_SIZE_V1"},
		"a field put before":    {"    uint32_t num_slots;\n    const pf_tensor", "    uint32_t later;\n    uint32_t num_slots;\n    const pf_tensor", "pf_tuple"},
		"a field gone":          {"    uint64_t loan; /*", "    /*", "pf_tuple"},
		"a field's type":        {"    uint8_t failed;", "    uint16_t failed;", "pf_queue_info"},
		"fields in one line":    {"uint64_t put, got, dropped, put_bytes;", "uint64_t got, put, dropped, put_bytes;", "pf_staging_info"},
		"a struct with no size": {"    int32_t device;\n} pf_place;", "    int32_t device;\n    int32_t later;\n} pf_place;", "pf_place"},
		"a struct gone":         {"typedef struct pf_lod_level {", "typedef struct pf_lod {", "pf_lod_level"},
		"a type":                {"typedef uint64_t pf_handle;", "typedef uint32_t pf_handle;", "pf_handle"},
		"a callback":            {"typedef int (*pf_kernel)(void *context, ", "typedef int (*pf_kernel)(", "pf_kernel"},
		"a parameter's type":    {"pf_retain(pf_handle handle", "pf_retain(uint32_t handle", "pf_retain"},
		"a parameter more":      {"pf_retain(pf_handle handle", "pf_retain(pf_handle handle, int how", "pf_retain"},
		"a result":              {"PF_API void pf_tuple_release", "PF_API pf_status pf_tuple_release", "pf_tuple_release"},
		"a function gone":       {"PF_API pf_status pf_retain", "PF_API pf_status pf_hold", "pf_retain"},
		"a callback parameter":  {"void (*release)(void *context), void", "int (*release)(void *context), void", "pf_queue_push_lent"},
	} {
		changed := strings.Replace(text, change.from, change.to, 1)
		if changed == text {
			t.Errorf("%s: %q is not in the header", name, change.from)
			continue
		}
		found := changes(older, parseHeader(changed))
		if len(found) == 0 || !strings.Contains(strings.Join(found, "\n"), change.want) {
			t.Errorf("%s: expected a change of %s, found %v", name, change.want, found)
		}
	}
	for name, change := range map[string]struct{ from, to string }{
		"a field at the end":   {"    uint64_t loan; /* 0: nothing is on loan */\n", "    uint64_t loan;\n    uint64_t later;\n"},
		"a parameter's name":   {"pf_retain(pf_handle handle", "pf_retain(pf_handle h"},
		"a constant more":      {"    PF_UINT8 = 6,\n", "    PF_UINT8 = 6,\n    PF_LATER = 99,\n"},
		"a function more":      {"PF_API pf_status pf_retain", "PF_API pf_status pf_hold(pf_handle h);\nPF_API pf_status pf_retain"},
		"the release":          {`#define PF_VERSION "0.1.0"`, `#define PF_VERSION "0.2.0"`},
		"a comment":            {"/* 0: nothing is on loan */", "/* nothing */"},
		"an initialiser's end": {"#define PF_TUPLE_INIT {sizeof(pf_tuple), 0, NULL, 0}", "#define PF_TUPLE_INIT {sizeof(pf_tuple), 0, NULL, 0, 0}"},
	} {
		changed := strings.Replace(text, change.from, change.to, 1)
		if changed == text {
			t.Errorf("%s: %q is not in the header", name, change.from)
			continue
		}
		if found := changes(older, parseHeader(changed)); len(found) > 0 {
			t.Errorf("%s: expected no change, found %v", name, found)
		}
	}
}

// Every declaration of pyfeed.h needs a doc comment that ends with the first release that has the declaration. Every
// struct needs a constant with its size in that release.
func TestEveryDeclarationOfTheHeaderSaysSinceWhen(t *testing.T) {
	text := read(t, "capi/pyfeed.h")
	declarations := regexp.MustCompile(`(?m)^(?:PF_API .*|typedef .*|enum \{.*|#define PF_.*)$`).FindAllStringIndex(text, -1)
	since := regexp.MustCompile(`\\since \d+\.\d+ \*/\n$`)
	count := 0
	for _, at := range declarations {
		line := text[at[0]:at[1]]
		if strings.HasPrefix(line, "#define PF_API") {
			continue
		}
		count++
		begin := strings.LastIndex(text[:at[0]], "/*")
		if begin < 0 || !strings.HasPrefix(text[begin:], "/**") || !since.MatchString(text[begin:at[0]]) {
			t.Errorf("%s: expected a comment above it that ends with \\since and a release", line)
		}
	}
	if count < 140 {
		t.Errorf("found only %d declarations", count)
	}
	h := parseHeader(text)
	for name := range h.structs {
		if size := strings.ToUpper(name) + "_SIZE_V1"; h.constants[size] == "" {
			t.Errorf("struct %s: expected a %s", name, size)
		}
	}
}
