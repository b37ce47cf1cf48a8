#include "verifier/values.h"

#include <stdio.h>
#include <stdlib.h>

#define DAY 86400000LL
// Years 1 to 9999.
#define EARLIEST (-62135596800000LL)
#define LATEST 253402300799999LL
// Texts of so few decimal digits are all of different numbers; of more than the latter none has the need.
#define SURE_DIGITS 15
#define MOST_DIGITS 17
#define LEAST_PLAIN 1e-4
#define MOST_PLAIN 1e15

size_t scan_character(const u8 *text, size_t size) {
  u8 lead = text[0];
  size_t more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  // Other leads would spell what has a shorter form, or lies beyond U+10FFFF.
  if (lead < 0xC2 || lead > 0xF4 || size <= more) return 0;
  for (size_t i = 1; i <= more; i++)
    if ((text[i] & 0xC0) != 0x80) return 0;
  u8 next = text[1];
  if ((lead == 0xE0 && next < 0xA0) || (lead == 0xED && next > 0x9F)) return 0; // the latter are surrogates
  if ((lead == 0xF0 && next < 0x90) || (lead == 0xF4 && next > 0x8F)) return 0;
  return more + 1;
}

static void escaped(Buffer *out, u8 byte) {
  static const char SHORT[] = "btn\0fr"; // of 8 to 13
  u8 text[6] = {'\\', 'u', '0', '0', (u8)('0' + (byte >> 4)), (u8)"0123456789abcdef"[byte & 15]};
  if (byte >= 8 && byte <= 13 && byte != 11) {
    text[1] = (u8)SHORT[byte - 8];
    buffer_add(out, text, 2);
  } else {
    buffer_add(out, text, sizeof text);
  }
}

int scan_text(Buffer *out, const u8 *text, size_t size) {
  buffer_add_byte(out, '"');
  for (size_t at = 0; at < size;) {
    size_t plain = scan_plain(text + at, size - at);
    buffer_add(out, text + at, plain);
    at += plain;
    if (at == size) break;
    u8 byte = text[at];
    size_t taken = 1;
    if (byte >= 0x80) {
      taken = scan_character(text + at, size - at);
      if (!taken) return 0;
      buffer_add(out, text + at, taken);
    } else if (byte < 0x20) {
      // PostgreSQL cannot hold U+0000, and marks begin with it.
      if (!byte) return 0;
      escaped(out, byte);
    } else {
      buffer_add_byte(out, '\\');
      buffer_add_byte(out, byte);
    }
    at += taken;
  }
  buffer_add_byte(out, '"');
  return 1;
}

void scan_integer(Buffer *out, i64 value) {
  u8 text[20];
  size_t at = sizeof text;
  u64 left = value < 0 ? 0 - (u64)value : (u64)value;
  do text[--at] = (u8)('0' + left % 10);
  while (left /= 10);
  if (value < 0) text[--at] = '-';
  buffer_add(out, text + at, sizeof text - at);
}

// The number of decimal digits with which a text comes back as the same number; 0 where none is sure.
static int digits_of(double value, char text[32]) {
  for (int digits = SURE_DIGITS; digits <= MOST_DIGITS; digits++) {
    int length = snprintf(text, 32, "%.*g", digits, value);
    // A process may have set another decimal point.
    if (length <= 0 || length >= 32 || !strchr(text, '.') || strchr(text, 'e')) return 0;
    if (strtod(text, NULL) == value) return digits;
  }
  return 0;
}

// Where the distance to the next smaller number is another one than to the next larger, the shortest text that
// comes back need not be the nearest of its length; and halfway between two texts either is the nearest.
static int is_sure(double value, int digits) {
  char longer[32];
  u64 bits;
  memcpy(&bits, &value, sizeof bits);
  if (digits == SURE_DIGITS) return 1;
  if (!(bits << 12)) return 0;
  int length = snprintf(longer, sizeof longer, "%.*g", MOST_DIGITS, value);
  return digits == MOST_DIGITS || longer[length - 1] != '5';
}

int scan_fraction(Buffer *out, double value) {
  double size = value < 0 ? -value : value;
  char text[32];
  // Whole ones are stored as integers; others have an exponent.
  if (!(size >= LEAST_PLAIN && size < MOST_PLAIN) || size == (double)(i64)size) return 0;
  int digits = digits_of(value, text);
  if (!digits || !is_sure(value, digits)) return 0;
  buffer_add(out, text, strlen(text));
  return 1;
}

// With quotes.
void scan_base64(Buffer *out, const u8 *bytes, size_t size) {
  static const char LETTERS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (!buffer_need(out, (size + 2) / 3 * 4 + 2)) return;
  u8 *to = out->bytes + out->size;
  *to++ = '"';
  while (size) {
    u8 a = bytes[0], b = size > 1 ? bytes[1] : 0, c = size > 2 ? bytes[2] : 0;
    size_t taken = size < 3 ? size : 3;
    *to++ = (u8)LETTERS[a >> 2];
    *to++ = (u8)LETTERS[(a & 3) << 4 | b >> 4];
    *to++ = size > 1 ? (u8)LETTERS[(b & 15) << 2 | c >> 6] : '=';
    *to++ = size > 2 ? (u8)LETTERS[c & 63] : '=';
    bytes += taken;
    size -= taken;
  }
  *to++ = '"';
  out->size = (size_t)(to - out->bytes);
}

static void digits(u8 *text, u32 value, int count) {
  for (; count; value /= 10) text[--count] = (u8)('0' + value % 10);
}

// Days are counted from the first of March of the year 0, so that a leap day is the last of its year.
#define FROM_MARCH 719468
#define CYCLE 146097 // days of 400 years

static void calendar(u8 *text, i64 days) {
  u64 since = (u64)(days + FROM_MARCH);
  u32 day = (u32)(since % CYCLE);
  u32 year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
  u32 of_year = day - (365 * year + year / 4 - year / 100);
  u32 month = (5 * of_year + 2) / 153;
  digits(text + 8, of_year - (153 * month + 2) / 5 + 1, 2);
  digits(text + 5, month < 10 ? month + 3 : month - 9, 2);
  digits(text, (u32)(since / CYCLE) * 400 + year + (month >= 10), 4);
}

i64 scan_days(u32 year, u32 month, u32 day) {
  u32 shifted = month > 2 ? year : year - 1, from_march = month > 2 ? month - 3 : month + 9;
  u32 of_cycle = shifted % 400;
  u32 of_year = (153 * from_march + 2) / 5 + day - 1;
  u32 since = of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + of_year;
  return (i64)(shifted / 400) * CYCLE + since - FROM_MARCH;
}

int scan_instant(Buffer *out, i64 milliseconds) {
  if (milliseconds < EARLIEST || milliseconds > LATEST) return 0;
  u8 text[] = "\"0000-00-00T00:00:00.000+00:00\"";
  i64 days = milliseconds / DAY - (milliseconds % DAY < 0);
  u32 rest = (u32)(milliseconds - days * DAY), thousandths = rest % 1000;
  calendar(text + 1, days);
  digits(text + 12, rest / 3600000, 2);
  digits(text + 15, rest / 60000 % 60, 2);
  digits(text + 18, rest / 1000 % 60, 2);
  digits(text + 21, thousandths, 3);
  size_t head = thousandths ? 24 : 20;
  buffer_add(out, text, head);
  buffer_add(out, "+00:00\"", 7);
  return 1;
}
