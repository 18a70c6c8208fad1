// Programs that become another user by system calls past libc's functions.
#pragma once

namespace penstock::preload {

// Leaves the file cache if the system call that is made next may change the user of the program.
void leave_before(long number, const long* words);

}  // namespace penstock::preload
