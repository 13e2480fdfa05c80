// base/error_message.hpp — any exception in words, for those that report one.
#ifndef TRIREME_BASE_ERROR_MESSAGE_HPP_
#define TRIREME_BASE_ERROR_MESSAGE_HPP_

#include <exception>
#include <functional>
#include <string>

namespace trireme {

// What trireme's own errors and the system's say stands as it is. Of a library's, which
// may be no more than the name of a type, it says what that means and what to do.
std::string message_of(const std::exception& error);

// What `work` returns, or the kind and the message of its error, as a text that other
// processes can be told; and that text taken for what it is: returned, or thrown again.
std::string outcome_of(const std::function<std::string()>& work);
bool is_failure(const std::string& outcome);
std::string text_or_throw(const std::string& outcome);

}  // namespace trireme

#endif  // TRIREME_BASE_ERROR_MESSAGE_HPP_
