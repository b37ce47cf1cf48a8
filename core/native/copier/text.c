#include "copier/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// As in twinstore.models.json_text.
#define SMALLEST_PLAIN 1e-4
#define EACH(byte) (0x0101010101010101ULL * (byte))
#define TOPS EACH(0x80)

// The top bit of each byte that is zero; exact as long as no byte has its top bit set.
static inline u64 zeros(u64 bytes) { return (bytes - EACH(1)) & ~bytes & TOPS; }

// Whether none of eight bytes is anything but printable ASCII, or a quote or backslash.
static inline int are_plain(u64 bytes) {
  u64 escaped = zeros(bytes ^ EACH('"')) | zeros(bytes ^ EACH('\\')) | zeros(bytes ^ EACH(0x7F));
  return !((bytes | (bytes - EACH(0x20)) | escaped) & TOPS);
}

static inline int is_plain(u8 byte) { return byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\'; }

// The bytes of the code point that begins with `lead`, 0 where none does.
static u32 point_size(u8 lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

// Whether the byte behind the lead is none that makes an overlong form, a surrogate, or a point beyond U+10FFFF.
static int follows(u8 lead, u8 second) {
  switch (lead) {
    case 0xE0: return second >= 0xA0;
    case 0xED: return second < 0xA0;
    case 0xF0: return second >= 0x90;
    case 0xF4: return second < 0x90;
    default: return 1;
  }
}

static int is_point(const u8 *bytes, u32 size) {
  for (u32 index = 1; index < size; index++)
    if ((bytes[index] & 0xC0) != 0x80) return 0;
  return size == 1 || follows(bytes[0], bytes[1]);
}

static i64 unusual_points(Text text, u32 at) {
  i64 points = at;
  while (at < text.size) {
    u32 size = point_size(text.bytes[at]);
    if (!size || size > text.size - at || !is_point(text.bytes + at, size)) return -1;
    at += size;
    points++;
  }
  return points;
}

i64 text_points(Text text, int *plain) {
  u32 at = 0;
  *plain = 1;
  for (u64 eight; text.size - at >= 8; at += 8) {
    memcpy(&eight, text.bytes + at, 8);
    if (!are_plain(eight)) break;
  }
  while (at < text.size && is_plain(text.bytes[at])) at++;
  if (at == text.size) return at;
  *plain = 0;
  return unusual_points(text, at);
}

static u32 point_at(const u8 *bytes) {
  if (bytes[0] < 0x80) return bytes[0];
  if (bytes[0] < 0xE0) return (bytes[0] & 31u) << 6 | (bytes[1] & 63u);
  if (bytes[0] < 0xF0) return (bytes[0] & 15u) << 12 | (bytes[1] & 63u) << 6 | (bytes[2] & 63u);
  return (bytes[0] & 7u) << 18 | (bytes[1] & 63u) << 12 | (bytes[2] & 63u) << 6 | (bytes[3] & 63u);
}

// White space of Unicode, controls, and what some program takes for a blank though Unicode does not.
static int is_blank(u32 point) {
  if (point <= 0x20 || (point >= 0x7F && point <= 0xA0)) return 1;
  if (point < 0x1680) return 0;
  if (point >= 0x2000 && point <= 0x200F) return 1;
  switch (point) {
    case 0x1680:
    case 0x180E:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x2060:
    case 0x3000:
    case 0xFEFF: return 1;
    default: return 0;
  }
}

int text_is_trimmed(Text text) {
  if (!text.size) return 1;
  u32 last = text.size - 1;
  while (last && (text.bytes[last] & 0xC0) == 0x80) last--;
  return !is_blank(point_at(text.bytes)) && !is_blank(point_at(text.bytes + last));
}

int text_has_control(Text text) {
  for (u32 at = 0; at < text.size; at++) {
    u8 byte = text.bytes[at];
    if (byte < 0x20 || byte == 0x7F) return 1;
    if (byte == 0xC2 && at + 1 < text.size && text.bytes[at + 1] < 0xA0) return 1;
  }
  return 0;
}

int text_is_lower(Text text) {
  for (u32 at = 0; at < text.size; at++)
    if (text.bytes[at] >= 0x80 || (text.bytes[at] >= 'A' && text.bytes[at] <= 'Z')) return 0;
  return 1;
}

int text_compare(Text left, Text right) {
  u32 both = left.size < right.size ? left.size : right.size;
  // An absent text has no bytes to point at.
  int order = both ? memcmp(left.bytes, right.bytes, both) : 0;
  return order ? order : (left.size > right.size) - (left.size < right.size);
}

static u8 *escape(u8 *to, u8 byte) {
  static const char letters[] = "btn\0fr", digits[] = "0123456789abcdef";
  *to++ = '\\';
  if (byte == '"' || byte == '\\') {
    *to++ = byte;
  } else if (byte >= 8 && byte <= 13 && byte != 11) {
    *to++ = (u8)letters[byte - 8];
  } else {
    memcpy(to, "u00", 3);
    to[3] = (u8)digits[byte >> 4];
    to[4] = (u8)digits[byte & 15];
    to += 5;
  }
  return to;
}

void json_text(Buffer *out, Text text, int plain) {
  if (!buffer_need(out, plain ? (size_t)text.size + 2 : (size_t)text.size * 6 + 2)) return;
  u8 *to = out->bytes + out->size;
  *to++ = '"';
  if (plain) {
    memcpy(to, text.bytes, text.size);
    to += text.size;
  } else {
    for (u32 at = 0; at < text.size; at++) {
      u8 byte = text.bytes[at];
      if (byte < 0x20 || byte == '"' || byte == '\\') to = escape(to, byte);
      else *to++ = byte;
    }
  }
  *to++ = '"';
  out->size = (size_t)(to - out->bytes);
}

void json_int(Buffer *out, i64 value) {
  u8 digits[20];
  u32 at = sizeof digits;
  u64 rest = value < 0 ? 0 - (u64)value : (u64)value;
  do digits[--at] = (u8)('0' + rest % 10);
  while (rest /= 10);
  if (value < 0) digits[--at] = '-';
  buffer_add(out, digits + at, sizeof digits - at);
}

static void put_digits(u8 *to, u32 count, u32 value) {
  for (; count; value /= 10) to[--count] = (u8)('0' + value % 10);
}

// Writes YYYY-MM-DD by the algorithm of Howard Hinnant (days from civil), whose years begin in March.
static void put_date(u8 *to, i64 days_since_1970) {
  i64 days = days_since_1970 + 719468;
  i64 era = days / 146097; // no day before the year 1 comes here
  u32 day_of_era = (u32)(days - era * 146097);
  u32 year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  u32 day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  u32 shifted = (5 * day_of_year + 2) / 153;
  u32 month = shifted < 10 ? shifted + 3 : shifted - 9;
  put_digits(to, 4, (u32)(era * 400) + year_of_era + (month <= 2));
  to[4] = to[7] = '-';
  put_digits(to + 5, 2, month);
  put_digits(to + 8, 2, day_of_year - (153 * shifted + 2) / 5 + 1);
}

void json_instant(Buffer *out, i64 milliseconds) {
  u8 text[] = "\"0000-00-00T00:00:00.000+00:00\"";
  i64 since_year_1 = milliseconds - LEAST_INSTANT;
  u32 in_day = (u32)(since_year_1 % 86400000), fraction = in_day % 1000, seconds = in_day / 1000;
  put_date(text + 1, since_year_1 / 86400000 - 719162);
  put_digits(text + 12, 2, seconds / 3600);
  put_digits(text + 15, 2, seconds / 60 % 60);
  put_digits(text + 18, 2, seconds % 60);
  put_digits(text + 21, 3, fraction);
  if (fraction) {
    buffer_add(out, text, 31);
  } else {
    buffer_add(out, text, 20);
    buffer_add(out, "+00:00\"", 7);
  }
}

// Texts of so few digits are all of different numbers: of a number with a shorter one it is that one and zeros.
#define SURE_DIGITS 15
#define MOST_DIGITS 17

// The digits in front of the zeros at the end, of a text with as many digits.
static int without_zeros(const char *text, int digits) {
  while (digits > 1 && text[digits] == '0') digits--;
  return digits;
}

// The fewest digits that give the number back, as d.ddde-xx; 0 where other digits, as few of them, might do so too.
static int shortest(double value, char *text, size_t size) {
  int exponent;
  int is_power = fabs(frexp(value, &exponent)) == 0.5;
  for (int digits = SURE_DIGITS; digits <= MOST_DIGITS; digits++) {
    // The next numbers on both sides of a power of two are not equally far, so that the nearest need not be it.
    if (is_power && digits > SURE_DIGITS) return 0;
    if (snprintf(text, size, "%.*e", digits - 1, value) >= (int)size) return 0;
    if (strtod(text, NULL) == value) return without_zeros(text, digits);
  }
  return 0;
}

// Writes digits as repr does where the exponent is from -4 to 15, as that of each number with a fraction is here.
static void put_plain(Buffer *out, const char *digits, int count, int exponent) {
  for (int place = exponent < 0 ? exponent : 0; place < count || place <= exponent; place++) {
    if (place == exponent + 1 && place > 0) buffer_add_byte(out, '.');
    buffer_add_byte(out, (u8)(place < 0 || place >= count ? '0' : digits[place]));
    if (place < 0 && place == exponent) buffer_add_byte(out, '.');
  }
}

static void put_fraction(Buffer *out, double value, const char *text, int count) {
  char digits[20];
  digits[0] = text[0];
  if (count > 1) memcpy(digits + 1, text + 2, (size_t)count - 1);
  int exponent = atoi(strchr(text, 'e') + 1);
  if (value < 0) buffer_add_byte(out, '-');
  put_plain(out, digits, count, exponent);
}

int json_number(Buffer *out, double value) {
  if (!isfinite(value) || (value == 0 && signbit(value))) return 0;
  // Beyond 64 bits all of them are whole.
  if (!(value > -0x1p63 && value < 0x1p63)) return 0;
  if (value == (double)(i64)value) {
    if (out) json_int(out, (i64)value);
    return 1;
  }
  // Small ones are written with an exponent, and not by every program with the same digits.
  if (fabs(value) < SMALLEST_PLAIN) return 0;
  char text[40];
  int count = shortest(fabs(value), text, sizeof text);
  // Whoever has set another locale has another point.
  if (!count || (count > 1 && text[1] != '.')) return 0;
  if (out) put_fraction(out, value, text, count);
  return 1;
}
