#include "copier/write_bson.h"

#include "copier/checker.h"
#include "copier/packed.h"

// The time to sort them grows with their square.
#define MOST_UNSORTED 256

size_t bson_begin(Buffer *out, u8 type, Text name) {
  size_t start = out->size;
  buffer_add_byte(out, type);
  buffer_add(out, name.bytes, name.size);
  buffer_add_byte(out, 0);
  return start;
}

size_t bson_begin_item(Buffer *out, u32 index) {
  u8 digits[12];
  u32 at = sizeof digits;
  do {
    digits[--at] = (u8)('0' + index % 10);
    index /= 10;
  } while (index);
  return bson_begin(out, 0, (Text){digits + at, (u32)sizeof digits - at});
}

void bson_end(Buffer *out, size_t start) {
  buffer_add_byte(out, 0);
  if (!out->failed) write_u32(out->bytes + start, (u32)(out->size - start));
}

u8 bson_add_int(Buffer *out, i64 value, int is_long) {
  if (!is_long && value >= INT32_MIN && value <= INT32_MAX) {
    buffer_add_u32(out, (u32)(i32)value);
    return BSON_INT;
  }
  buffer_add_i64(out, value);
  return BSON_LONG;
}

u8 bson_add_text(Buffer *out, Text text) {
  buffer_add_u32(out, text.size + 1);
  buffer_add(out, text.bytes, text.size);
  buffer_add_byte(out, 0);
  return BSON_TEXT;
}

static int members_rise(const u8 *bytes, const Place *left, const Place *right) {
  if (left->field != right->field) return left->field < right->field;
  return strcmp((const char *)bytes + left->start + 1, (const char *)bytes + right->start + 1) <= 0;
}

static int are_sorted(const u8 *bytes, const Place *places, u32 count) {
  for (u32 index = 1; index < count; index++)
    if (!members_rise(bytes, &places[index - 1], &places[index])) return 0;
  return 1;
}

int sort_members(Buffer *out, Place *places, u32 count) {
  if (out->failed || are_sorted(out->bytes, places, count)) return 1;
  if (count > MOST_UNSORTED) return 0;
  u32 start = places[0].start;
  size_t size = out->size - start;
  if (!buffer_need(out, size)) return 1;
  for (u32 index = 1; index < count; index++) {
    Place moved = places[index];
    u32 at = index;
    for (; at && !members_rise(out->bytes, &places[at - 1], &moved); at--) places[at] = places[at - 1];
    places[at] = moved;
  }
  u8 *sorted = out->bytes + out->size;
  for (u32 index = 0; index < count; index++) {
    size_t length = places[index].end - places[index].start;
    memcpy(sorted, out->bytes + places[index].start, length);
    sorted += length;
  }
  memcpy(out->bytes + start, out->bytes + out->size, size);
  return 1;
}
