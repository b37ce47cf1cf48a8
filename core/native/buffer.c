#include "buffer.h"

#include <stdlib.h>

#define SMALLEST 4096

int buffer_grow(Buffer *buffer, size_t more) {
  if (buffer->failed || more > SIZE_MAX / 2 - buffer->size) {
    buffer->failed = 1;
    return 0;
  }
  size_t room = buffer->room * 2 > buffer->size + more ? buffer->room * 2 : buffer->size + more + SMALLEST;
  u8 *bytes = realloc(buffer->bytes, room);
  if (!bytes) {
    buffer->failed = 1;
    return 0;
  }
  buffer->bytes = bytes;
  buffer->room = room;
  return 1;
}

TS_API Buffer *ts_buffer_new(void) { return calloc(1, sizeof(Buffer)); }

TS_API void ts_buffer_free(Buffer *buffer) {
  if (buffer) free(buffer->bytes);
  free(buffer);
}

TS_API const u8 *ts_buffer_bytes(const Buffer *buffer) { return buffer->bytes; }
TS_API size_t ts_buffer_size(const Buffer *buffer) { return buffer->size; }
TS_API int ts_buffer_failed(const Buffer *buffer) { return buffer->failed; }

TS_API void ts_buffer_clear(Buffer *buffer) { buffer_clear(buffer); }
