// Bytes that grow, and the types that every file uses. It knows no format.
#ifndef TWINSTORE_BUFFER_H
#define TWINSTORE_BUFFER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;

// What the library shows; everything else is hidden.
#define TS_API __attribute__((visibility("default")))

// Answers of functions that otherwise return a number of rows.
#define TS_BROKEN (-1)
#define TS_NO_MEMORY (-2)

typedef struct {
  u8 *bytes;
  size_t size, room;
  int failed; // no memory: whatever is added from then on is dropped, and callers answer TS_NO_MEMORY
} Buffer;

int buffer_grow(Buffer *buffer, size_t more);

// Makes room for some bytes behind those that are there; 0 when there is no memory.
static inline int buffer_need(Buffer *buffer, size_t more) {
  return buffer->room - buffer->size >= more || buffer_grow(buffer, more);
}

static inline void buffer_add(Buffer *buffer, const void *bytes, size_t size) {
  if (size && buffer_need(buffer, size)) {
    memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
  }
}

static inline void buffer_add_byte(Buffer *buffer, u8 byte) {
  if (buffer_need(buffer, 1)) buffer->bytes[buffer->size++] = byte;
}

static inline void buffer_clear(Buffer *buffer) {
  buffer->size = 0;
  buffer->failed = 0;
}

static inline void buffer_add_u32(Buffer *buffer, u32 value) { buffer_add(buffer, &value, sizeof value); }
static inline void buffer_add_i64(Buffer *buffer, i64 value) { buffer_add(buffer, &value, sizeof value); }

#endif
