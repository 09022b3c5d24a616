// Attributes of the operators of a program.
#ifndef PYFEED_PYFEED_ATTRIBUTES_HPP
#define PYFEED_PYFEED_ATTRIBUTES_HPP

#include <cmath>
#include <initializer_list>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "json.hpp"

namespace pyfeed {

class Attributes;

// The value of an attribute: a bool, a number, a string, or a list or map of such values. Integers and floats
// are different values: 1 is not 1.0.
class AttributeValue {
public:
    template <class T, class = std::enable_if_t<detail::is_plain_integer<T> || std::is_same_v<T, bool> ||
                                                std::is_floating_point_v<T>>>
    AttributeValue(T value) {
        if constexpr (std::is_floating_point_v<T>) {
            json_ = number(static_cast<double>(value));
        } else {
            json_ = detail::to_json(value);
        }
    }
    AttributeValue(const char *text) : json_(detail::to_json(std::string(text))) {}
    AttributeValue(const std::string &text) : json_(detail::to_json(text)) {}
    inline AttributeValue(const Attributes &members);
    AttributeValue(std::initializer_list<AttributeValue> values)
        : AttributeValue(values.begin(), values.end()) {}
    template <class T>
    AttributeValue(const std::vector<T> &values) : AttributeValue(values.begin(), values.end()) {}

    const std::string &json() const noexcept { return json_; }

private:
    template <class I>
    AttributeValue(I begin, I end) : json_("[") {
        for (I i = begin; i != end; ++i) json_ += (i != begin ? ", " : "") + AttributeValue(*i).json_;
        json_ += ']';
    }

    // JSON has only finite numbers, and does not tell 1 from 1.0. So a float that is not finite is an object,
    // and a whole number gets ".0".
    static std::string number(double value) {
        if (std::isnan(value)) return R"({"$float": "nan"})";
        if (std::isinf(value)) return value > 0 ? R"({"$float": "inf"})" : R"({"$float": "-inf"})";
        std::string out = detail::to_json(value);
        if (out.find_first_of(".e") == std::string::npos) out += ".0";
        return out;
    }

    std::string json_;
};

// The attributes of an operator or kernel: Attributes{{"rate", 0.1}, {"dims", {3, 4}}}. Write a map among
// them as Attributes{...}; without the name it is a list.
class Attributes {
public:
    Attributes() = default;
    Attributes(std::initializer_list<std::pair<std::string, AttributeValue>> members) {
        for (const auto &[name, value] : members) set(name, value);
    }

    Attributes &set(const std::string &name, AttributeValue value) {
        members_.insert_or_assign(name, std::move(value));
        return *this;
    }
    bool empty() const noexcept { return members_.empty(); }
    // The attributes as a JSON object.
    std::string json() const {
        std::string out = "{";
        for (const auto &[name, value] : members_) {
            out += (out.size() > 1 ? ", " : "") + detail::to_json(name) + ": " + value.json();
        }
        return out + "}";
    }

private:
    std::map<std::string, AttributeValue> members_;
};

inline AttributeValue::AttributeValue(const Attributes &members) : json_(members.json()) {}

}  // namespace pyfeed

#endif  // PYFEED_PYFEED_ATTRIBUTES_HPP
