// Values as JSON, as the comparison writes them. Where they answer: 0 for what no driver writes.
#ifndef TWINSTORE_VERIFIER_VALUES_H
#define TWINSTORE_VERIFIER_VALUES_H

#include "verifier/verifier.h"

// How many bytes at the beginning of a text are ASCII that JSON has as it is; eight are looked at together.
static inline size_t scan_plain(const u8 *text, size_t size) {
  const u64 each = 0x0101010101010101ull, high = each * 0x80;
  size_t at = 0;
  for (u64 bytes; size - at >= sizeof bytes; at += sizeof bytes) {
    memcpy(&bytes, text + at, sizeof bytes);
    u64 quotes = bytes ^ each * '"', slashes = bytes ^ each * '\\';
    // A byte below a number borrows from its highest bit, where that is not set in it.
    u64 controls = (bytes - each * 0x20) & ~bytes, others = ((quotes - each) & ~quotes) | ((slashes - each) & ~slashes);
    if ((bytes | controls | others) & high) break;
  }
  while (at < size && text[at] >= 0x20 && text[at] < 0x80 && text[at] != '"' && text[at] != '\\') at++;
  return at;
}

int scan_text(Buffer *out, const u8 *text, size_t size);
void scan_integer(Buffer *out, i64 value);
int scan_fraction(Buffer *out, double value);
int scan_instant(Buffer *out, i64 milliseconds);
void scan_base64(Buffer *out, const u8 *bytes, size_t size);

// The bytes of one character beyond ASCII; 0 where it is no UTF-8.
size_t scan_character(const u8 *text, size_t size);

// Days since 1970 of a day of the calendar.
i64 scan_days(u32 year, u32 month, u32 day);

#endif
