#include "verifier/instants.h"

#include "verifier/values.h"

#define PLAIN 22 // 2025-10-26 14:05:00+00
#define POINT 19
#define MOST_DIGITS 3 // a driver writes whole milliseconds

static int read_number(const u8 *text, int count, u32 least, u32 most, u32 *value) {
  *value = 0;
  for (int i = 0; i < count; i++) {
    if (text[i] < '0' || text[i] > '9') return 0;
    *value = *value * 10 + (u32)(text[i] - '0');
  }
  return *value >= least && *value <= most;
}

static int read_fraction(const u8 *text, size_t digits, u32 *thousandths) {
  static const u32 EACH[] = {100, 10, 1};
  if (!read_number(text, (int)digits, 0, 999, thousandths)) return 0;
  *thousandths *= EACH[digits - 1];
  return 1;
}

static u32 days_of(u32 year, u32 month) {
  static const u8 DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  int is_leap = year % 4 == 0 && (year % 100 || year % 400 == 0);
  return DAYS[month - 1] + (u32)(month == 2 && is_leap);
}

static int read_day(const u8 *t, i64 *days) {
  u32 year, month, day;
  if (!read_number(t, 4, 1, 9999, &year) || !read_number(t + 5, 2, 1, 12, &month)) return 0;
  if (!read_number(t + 8, 2, 1, days_of(year, month), &day)) return 0;
  *days = scan_days(year, month, day);
  return 1;
}

int instant_read(Span text, i64 *milliseconds) {
  const u8 *t = text.bytes;
  u32 hour, minute, second, thousandths = 0;
  i64 days;
  size_t digits = text.size == PLAIN ? 0 : text.size - PLAIN - 1;
  if (text.size < PLAIN || text.size == PLAIN + 1 || digits > MOST_DIGITS) return 0;
  if (t[4] != '-' || t[7] != '-' || t[10] != ' ' || t[13] != ':' || t[16] != ':') return 0;
  if (memcmp(t + text.size - 3, "+00", 3) || (digits && t[POINT] != '.')) return 0;
  if (!read_day(t, &days) || !read_number(t + 11, 2, 0, 23, &hour) || !read_number(t + 14, 2, 0, 59, &minute)) return 0;
  if (!read_number(t + 17, 2, 0, 59, &second) || (digits && !read_fraction(t + POINT + 1, digits, &thousandths))) return 0;
  i64 minutes = (days * 24 + hour) * 60 + minute;
  *milliseconds = (minutes * 60 + second) * 1000 + thousandths;
  return 1;
}
