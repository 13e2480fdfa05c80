// base/error_message.hpp — any exception in words, for those that report one.
#ifndef TRIREME_BASE_ERROR_MESSAGE_HPP_
#define TRIREME_BASE_ERROR_MESSAGE_HPP_

#include <exception>
#include <string>

namespace trireme {

// What trireme's own errors and the system's say stands as it is. Of a library's, which
// may be no more than the name of a type, it says what that means and what to do.
std::string message_of(const std::exception& error);

}  // namespace trireme

#endif  // TRIREME_BASE_ERROR_MESSAGE_HPP_
