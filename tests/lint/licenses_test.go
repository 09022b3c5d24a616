package lint

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// thirdParty returns the sections of THIRD_PARTY_LICENSES: the text of each project, with single spaces.
func thirdParty(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "THIRD_PARTY_LICENSES"))
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), strings.Repeat("-", 70)+"\n")
	if len(parts)%2 != 1 {
		t.Fatalf("THIRD_PARTY_LICENSES: expected each name between two lines of 70 dashes, found %d lines", len(parts)-1)
	}
	sections := map[string]string{}
	for i := 1; i < len(parts); i += 2 {
		sections[strings.TrimSpace(parts[i])] = singleSpaces(parts[i+1])
	}
	return sections
}

func singleSpaces(text string) string { return strings.Join(strings.Fields(text), " ") }

// linkedPackage is what `go list -json` says of a package.
type linkedPackage struct {
	ImportPath, Dir, Root string
	Standard              bool
	Module                *struct{ Path, Dir string }
}

// linkedPackages returns the packages of other projects that the library contains on an architecture.
func linkedPackages(t *testing.T, architecture string) []linkedPackage {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Root,Standard,Module", "./capi")
	list.Dir = root
	list.Env = append(os.Environ(), "GOARCH="+architecture, "CGO_ENABLED=1")
	list.Stderr = os.Stderr
	output, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []linkedPackage
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p linkedPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if !strings.HasPrefix(p.ImportPath+"/", module) && p.Dir != "" {
			packages = append(packages, p)
		}
	}
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|unlicense)([.-].*)?$`)

// licenseFiles returns the licences in the folder of a package and in those above it, up to the project's root.
func licenseFiles(t *testing.T, dir, top string) []string {
	t.Helper()
	var files []string
	for ; ; dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if strings.HasSuffix(dir, "crypto/internal/boring") {
				break // its licence is that of BoringCrypto, which only GOEXPERIMENT=boringcrypto links
			}
			// A folder of this name, or a Go file, is no licence.
			if entry.Type().IsRegular() && licenseFile.MatchString(entry.Name()) && filepath.Ext(entry.Name()) != ".go" {
				files = append(files, filepath.Join(dir, entry.Name()))
			}
		}
		if dir == top || len(dir) <= len(top) {
			return files
		}
	}
}

// apacheTerms returns the part of the Apache License that is the same for all projects, or "".
func apacheTerms(text string) string {
	from, end := strings.Index(text, "Apache License Version 2.0"), strings.Index(text, "END OF TERMS AND CONDITIONS")
	if from < 0 || end < from {
		return ""
	}
	return text[from:end]
}

// THIRD_PARTY_LICENSES has the complete text of each licence of each package that is linked, and no other projects.
func TestLicensesAreComplete(t *testing.T) {
	const goSection, beside = "The Go runtime and standard library", "The License is in the file LICENSE beside this one."
	own, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	sections := thirdParty(t)
	unused := map[string]bool{}
	for name := range sections {
		unused[name] = name != "zig's compiler-rt" // the linker of zig adds it, see distribution/sbom.py
	}
	licenses := map[string]int{}
	missing := map[string]bool{}
	for _, architecture := range []string{"amd64", "arm64"} {
		for _, p := range linkedPackages(t, architecture) {
			name, top := goSection, p.Root
			if p.Module != nil {
				name, top = p.Module.Path, p.Module.Dir
			}
			section, known := sections[name]
			if !known && !missing[name] {
				missing[name] = true
				t.Errorf("THIRD_PARTY_LICENSES: expected a section %q, because the library contains %s, found none", name, p.ImportPath)
			}
			unused[name] = false
			for _, file := range licenseFiles(t, p.Dir, top) {
				licenses[name]++
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				license := singleSpaces(string(text))
				terms := apacheTerms(license)
				refers := terms != "" && strings.Contains(section, beside) && terms == apacheTerms(singleSpaces(string(own)))
				if known && !strings.Contains(section, license) && !refers && !missing[file] {
					missing[file] = true
					t.Errorf("THIRD_PARTY_LICENSES: expected the text of %s in the section %q, for %s, found another", file, name, p.ImportPath)
				}
			}
		}
	}
	for name, is := range unused {
		if is {
			t.Errorf("THIRD_PARTY_LICENSES: expected only projects that are linked, found the section %q", name)
		} else if licenses[name] == 0 && name != "zig's compiler-rt" {
			t.Errorf("%s: expected a file with its licence, found none", name)
		}
	}
}

// A module may link far more than what is used of it. The import would take longer, and more memory.
func TestTheLibraryLinksNoNetwork(t *testing.T) {
	for _, architecture := range []string{"amd64", "arm64"} {
		for _, p := range linkedPackages(t, architecture) {
			if p.ImportPath == "net/http" || p.ImportPath == "crypto/tls" {
				t.Errorf("%s: expected no package %s, found it among the dependencies of ./capi: go mod why %s", architecture, p.ImportPath, p.ImportPath)
			}
		}
	}
}
