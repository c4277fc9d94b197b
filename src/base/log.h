// Warnings that no caller receives as a status, such as a lock recovered from a dead rank.
#ifndef MULTIVERSO_BASE_LOG_H_
#define MULTIVERSO_BASE_LOG_H_

#include <string>

namespace multiverso {

// Prints one line to standard error, unless the environment variable MULTIVERSO_LOG is "off".
void LogWarning(const std::string& text);

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_LOG_H_
