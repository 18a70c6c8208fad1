// Records what streams of stdio read and write.
#pragma once

namespace penstock::preload {

// Begins to record the transfers of all streams of this process. Returns null, or why libc's
// streams cannot be recorded. Call it before other threads use streams.
const char* begin_tracing_streams();

}  // namespace penstock::preload
