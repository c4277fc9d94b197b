// Warnings that no caller receives as a status, such as a lock recovered from a dead rank.
#pragma once

#include <string>

namespace multiverso {

// Prints one line to standard error, unless the environment variable MULTIVERSO_LOG is "off".
void LogWarning(const std::string& text);

}  // namespace multiverso
