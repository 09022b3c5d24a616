// Attributes of operators, as JSON.
#ifndef PYFEED_PYFEED_JSON_HPP
#define PYFEED_PYFEED_JSON_HPP

#include <cmath>
#include <cstdint>
#include <limits>
#include <locale>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "types.hpp"

namespace pyfeed {

namespace detail {

// Text that is JSON already.
struct Json {
    std::string text;
};

inline std::string to_json(const Json &value) { return value.text; }
inline std::string to_json(bool value) { return value ? "true" : "false"; }
std::string to_json(const char *) = delete;  // would be converted to bool
template <class I, class = std::enable_if_t<is_plain_integer<I>>>
std::string to_json(I value) {
    return std::to_string(value);
}
// Independent of the locale, with all digits of the value.
inline std::string to_json(double value) {
    if (!std::isfinite(value))
        throw InvalidArgument("expected a finite number, found " + std::to_string(value));
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out.precision(std::numeric_limits<double>::max_digits10);
    out << value;
    return out.str();
}
// The length in bytes of the UTF-8 character that begins at `at`; 0 if none begins there.
inline size_t utf8_length(const std::string &text, size_t at) {
    const auto byte = [&](size_t i) {
        return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
    };
    const unsigned first = byte(0), second = byte(1);
    if (first < 0x80) return 1;
    const size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < length; i++)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f))
        return 0;
    return length;
}
// A byte that is not part of UTF-8 becomes \u0000 and two hexadecimal digits, as pyfeed.h defines for file
// names.
inline std::string to_json(const std::string &text) {
    static const char digits[] = "0123456789abcdef";
    std::string out = "\"";
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        const auto byte = static_cast<unsigned char>(c);
        const size_t length = utf8_length(text, i);
        if (byte < 0x20 || length == 0) {
            out += length == 0 ? "\\u0000" : "\\u00";
            out += digits[byte >> 4];
            out += digits[byte & 15];
            continue;
        }
        if (length > 1) {
            out.append(text, i, length);
            i += length - 1;
            continue;
        }
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + '"';
}
template <class T>
std::string to_json(const std::vector<T> &values) {
    std::string out = "[";
    for (size_t i = 0; i < values.size(); i++) out += (i > 0 ? ", " : "") + to_json(values[i]);
    return out + "]";
}

class Attributes;
inline std::string to_json(const Attributes &value);
inline std::string to_json(const Place &place);
inline std::string to_json(const Places &places);
inline std::string to_json(const std::vector<SlotSpec> &slots);

// Builds a JSON object, member by member.
class Attributes {
public:
    template <class T>
    Attributes &set(const char *name, const T &value) {
        members_[name] = to_json(value);
        return *this;
    }
    bool empty() const { return members_.empty(); }
    bool has(const std::string &name) const { return members_.count(name) != 0; }
    std::string json() const {
        std::string out = "{";
        for (const auto &[name, value] : members_) {
            out += (out.size() > 1 ? ", " : "") + to_json(name) + ": " + value;
        }
        return out + "}";
    }

private:
    std::map<std::string, std::string> members_;
};

inline std::string to_json(const Attributes &value) { return value.json(); }
inline std::string to_json(const Place &place) {
    return Attributes().set("kind", place.kind).set("device", place.device).json();
}
inline std::string to_json(const Places &places) {
    if (places.list().size() == 1) return to_json(places.list()[0]);
    std::string out = "[";
    for (const Place place : places.list()) out += (out.size() > 1 ? ", " : "") + to_json(place);
    return out + "]";
}
inline std::string to_json(const SlotSpec &slot) {
    Attributes out;
    if (!slot.name.empty()) out.set("name", slot.name);
    out.set("dtype", dtype_name(slot.dtype));
    out.set("dims", std::vector<int64_t>(slot.shape.begin(), slot.shape.end()));
    return out.set("lod_levels", slot.lod_levels).json();
}
inline std::string to_json(const std::vector<SlotSpec> &slots) {
    std::string out = "[";
    for (const SlotSpec &slot : slots) out += (out.size() > 1 ? ", " : "") + to_json(slot);
    return out + "]";
}

// The base of options that are set one by one. pyfeed.h has the defaults.
template <class Self>
class Options {
public:
    const Attributes &attributes() const { return attributes_; }

protected:
    template <class T>
    Self &set(const char *name, const T &value) {
        attributes_.set(name, value);
        return static_cast<Self &>(*this);
    }

private:
    Attributes attributes_;
};

}  // namespace detail

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_JSON_HPP
