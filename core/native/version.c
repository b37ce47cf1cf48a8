#include "buffer.h"

#ifndef TS_VERSION
#error "TS_VERSION is the digest of the sources; hatch_build.py gives it"
#endif

// Compared with the sources of a checkout, so that none runs with a library of other sources.
TS_API const char *ts_version(void) { return TS_VERSION; }
