// A parser for JSON that the library returned. It reads in place.
#ifndef PYFEED_PYFEED_JSON_VIEW_HPP
#define PYFEED_PYFEED_JSON_VIEW_HPP

#include <algorithm>
#include <charconv>
#include <clocale>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "types.hpp"

namespace pyfeed {

namespace detail {

// A value in JSON text, which is borrowed. The library wrote the text, so the parser checks no more than it
// needs to stay within the text.
class JsonView {
public:
    JsonView() = default;
    explicit JsonView(std::string_view text) {
        size_t at = skip(text, 0);
        text_ = take(text, at);
    }

    std::string_view text() const { return text_; }
    bool is(char first) const { return !text_.empty() && text_.front() == first; }
    bool is_string(std::string_view value) const {
        if (text_.find('\\') != std::string_view::npos) return string() == value;
        return is('"') && text_.substr(1, text_.size() - 2) == value;
    }

    // Calls f(name, value) for each member of an object, or for each element of a list with an empty name,
    // until a call returns true. Returns whether one did.
    template <class F>
    bool any(F &&f) const {
        if (!is('{') && !is('[')) return false;
        for (size_t at = skip(text_, 1); at + 1 < text_.size();) {
            JsonView name, value;
            if (is('{')) {
                name.text_ = take(text_, at);
                at = skip(text_, at);  // skips the colon too
            }
            const size_t begin = at;
            value.text_ = take(text_, at);
            if (at == begin) return false;
            if (f(name, value)) return true;
            at = skip(text_, at);  // skips the comma too
        }
        return false;
    }
    // The member of that name; a view of empty text if there is none.
    JsonView operator[](std::string_view name) const {
        JsonView found;
        any([&](JsonView key, JsonView value) {
            const bool it = key.is_string(name);
            if (it) found = value;
            return it;
        });
        return found;
    }

    std::string string() const {
        std::string out;
        for (size_t i = 1; is('"') && i + 1 < text_.size(); i++) {
            if (text_[i] != '\\') {
                out += text_[i];
                continue;
            }
            switch (const char c = text_[++i]) {
                case 'b':
                    out += '\b';
                    break;
                case 'f':
                    out += '\f';
                    break;
                case 'n':
                    out += '\n';
                    break;
                case 'r':
                    out += '\r';
                    break;
                case 't':
                    out += '\t';
                    break;
                case 'u': {
                    uint32_t code = hex(i + 1);
                    i += 4;
                    if (code >= 0xd800 && code < 0xdc00 && text_.substr(i + 1, 2) == "\\u") {
                        code = 0x10000 + ((code - 0xd800) << 10) + ((hex(i + 3) - 0xdc00) & 0x3ff);
                        i += 6;
                    }
                    append_utf8(code, out);
                    break;
                }
                default:
                    out += c;
            }
        }
        return out;
    }

    // The value as a T; empty if it is not a T.
    template <class T>
    std::optional<T> as() const {
        if constexpr (std::is_same_v<T, bool>) {
            if (text_ == "true") return true;
            if (text_ == "false") return false;
            return std::nullopt;
        } else if constexpr (std::is_same_v<T, std::string>) {
            return is('"') ? std::optional<T>(string()) : std::nullopt;
        } else if constexpr (std::is_integral_v<T>) {
            T value{};
            const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
            if (error != std::errc() || end != text_.data() + text_.size()) return std::nullopt;
            return value;
        } else if constexpr (std::is_floating_point_v<T>) {
            return number<T>();
        } else {
            return list<T>();
        }
    }

private:
    template <class T>
    std::optional<T> number() const {
        if (is('{')) {
            const JsonView word = (*this)["$float"];
            if (word.is_string("nan")) return std::numeric_limits<T>::quiet_NaN();
            if (word.is_string("inf")) return std::numeric_limits<T>::infinity();
            if (word.is_string("-inf")) return -std::numeric_limits<T>::infinity();
            return std::nullopt;
        }
        if (text_.find_first_not_of("+-.0123456789eE") != std::string_view::npos) return std::nullopt;
        double value = 0;
#if defined(__cpp_lib_to_chars)
        const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
        if (error != std::errc() || end != text_.data() + text_.size()) return std::nullopt;
#else  // the standard library converts only integers: use C's function and the decimal point of its locale
        std::string text(text_);
        const size_t point = text.find('.');
        if (point != std::string::npos) text.replace(point, 1, std::localeconv()->decimal_point);
        char *end = nullptr;
        value = std::strtod(text.c_str(), &end);
        if (text.empty() || *end != '\0') return std::nullopt;
#endif
        // A number that is too small for T becomes 0. A number that is too large is no T.
        if (std::fabs(value) > static_cast<double>(std::numeric_limits<T>::max())) return std::nullopt;
        return static_cast<T>(value);
    }
    template <class T>
    std::optional<T> list() const {
        if (!is('[')) return std::nullopt;
        T out;
        const bool wrong = any([&](JsonView, JsonView value) {
            auto element = value.as<typename T::value_type>();
            if (element) out.push_back(std::move(*element));
            return !element;
        });
        return wrong ? std::nullopt : std::optional<T>(std::move(out));
    }

    static size_t skip(std::string_view text, size_t at) {
        return std::min(text.find_first_not_of(" \t\r\n,:", at), text.size());
    }
    // The value that begins at `at`. Moves `at` to its end.
    static std::string_view take(std::string_view text, size_t &at) {
        const size_t begin = at;
        for (int depth = 0; at < text.size(); at++) {
            const char c = text[at];
            if (depth == 0 && at > begin && std::strchr(",:]} \t\r\n", c) != nullptr) break;
            if (c == '{' || c == '[') depth++;
            if (c == '}' || c == ']') {
                if (--depth < 0) break;
            }
            if (c == '"') {
                for (at++; at < text.size() && text[at] != '"'; at++) at += text[at] == '\\';
            }
        }
        at = std::min(at, text.size());
        return text.substr(begin, at - begin);
    }
    uint32_t hex(size_t at) const {
        uint32_t code = 0;
        if (at + 4 <= text_.size()) std::from_chars(text_.data() + at, text_.data() + at + 4, code, 16);
        return code;
    }
    static void append_utf8(uint32_t code, std::string &out) {
        const auto add = [&out](uint32_t byte) {
            out += static_cast<char>(static_cast<unsigned char>(byte));
        };
        if (code < 0x80) return add(code);
        if (code < 0x800) {
            add(0xc0 | code >> 6);
        } else {
            if (code < 0x10000) {
                add(0xe0 | code >> 12);
            } else {
                add(0xf0 | code >> 18);
                add(0x80 | (code >> 12 & 0x3f));
            }
            add(0x80 | (code >> 6 & 0x3f));
        }
        add(0x80 | (code & 0x3f));
    }

    std::string_view text_;
};

inline DType dtype_of_name(JsonView name) {
    for (pf_dtype i = PF_BOOL; i <= PF_COMPLEX128; i++)
        if (name.is_string(pf_dtype_name(i))) return static_cast<DType>(i);
    return DType::any;
}
inline Shape shape_of(JsonView list) {
    return Shape(list.as<std::vector<int64_t>>().value_or(std::vector<int64_t>()));
}

}  // namespace detail

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_JSON_VIEW_HPP
