#include "copier/text.h"
#include "copier/transcode.h"

#define WHOLE 25 // 2025-10-26T14:05:00+00:00
#define FRACTION 4
#define DAY 86400000LL

// The number that some digits tell, -1 where one is none.
static i32 digits(const u8 *bytes, u32 count) {
  i32 value = 0;
  for (u32 index = 0; index < count; index++) {
    u32 digit = (u32)bytes[index] - '0';
    if (digit > 9) return -1;
    value = value * 10 + (i32)digit;
  }
  return value;
}

static int is_leap(i32 year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

static i32 days_in(i32 year, i32 month) {
  static const u8 days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return days[month - 1] + (month == 2 && is_leap(year));
}

// Days since 1970 in the Gregorian calendar; years begin in March here, so that a leap day comes last.
static i64 days_since_1970(i32 year, i32 month, i32 day) {
  i64 shifted = month > 2 ? year : year - 1;
  i64 era = shifted / 400, of_era = shifted % 400;
  i64 of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int read_day(const u8 *at, i64 *days) {
  i32 year = digits(at, 4), month = digits(at + 5, 2), day = digits(at + 8, 2);
  if (year < 1 || month < 1 || month > 12 || at[4] != '-' || at[7] != '-') return 0;
  if (day < 1 || day > days_in(year, month)) return 0;
  *days = days_since_1970(year, month, day);
  return 1;
}

static int read_time(const u8 *at, i64 *milliseconds) {
  i32 hour = digits(at, 2), minute = digits(at + 3, 2), second = digits(at + 6, 2);
  if (hour < 0 || minute < 0 || second < 0 || hour > 23 || minute > 59 || second > 59) return 0;
  *milliseconds = ((hour * 60LL + minute) * 60 + second) * 1000;
  return at[2] == ':' && at[5] == ':';
}

int read_instant(Text text, i64 *milliseconds) {
  if (text.size != WHOLE && text.size != WHOLE + FRACTION) return 0;
  i64 days, of_day;
  i32 fraction = 0;
  if (text.bytes[10] != 'T' || !read_day(text.bytes, &days) || !read_time(text.bytes + 11, &of_day)) return 0;
  const u8 *offset = text.bytes + text.size - 6;
  if (text.size > WHOLE) {
    fraction = digits(text.bytes + 20, 3);
    // One of zero is not written.
    if (text.bytes[19] != '.' || fraction <= 0) return 0;
  }
  if (memcmp(offset, "+00:00", 6)) return 0;
  *milliseconds = days * DAY + of_day + fraction;
  return 1;
}
