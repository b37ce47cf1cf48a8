#include "copier/cron.h"

// No longer expression is admitted.
#define LONGEST 1000
#define FIELDS 5
#define DAY_OF_MONTH 2
// Of the shortest month.
#define LAST_DAY 28

typedef struct {
  const u8 *at, *end;
} Reader;

static const u32 least[FIELDS] = {0, 0, 1, 1, 0}, most[FIELDS] = {59, 23, 31, 12, 7};

static int takes(Reader *reader, u8 byte) {
  if (reader->at == reader->end || *reader->at != byte) return 0;
  reader->at++;
  return 1;
}

// Reads a number of one to four digits.
static int read_number(Reader *reader, u32 *number) {
  const u8 *begin = reader->at;
  *number = 0;
  while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9' && reader->at - begin < 4)
    *number = *number * 10 + (u32)(*reader->at++ - '0');
  return reader->at > begin;
}

static int read_value(Reader *reader, u32 field, u32 *value) {
  return read_number(reader, value) && *value >= least[field] && *value <= most[field];
}

// Reads `*`, a value or a range, each with a step or not; tells the least value that it admits.
static int read_member(Reader *reader, u32 field, u32 *first) {
  u32 last, step;
  if (takes(reader, '*')) {
    *first = least[field];
  } else {
    if (!read_value(reader, field, first)) return 0;
    if (takes(reader, '-') && (!read_value(reader, field, &last) || last < *first)) return 0;
  }
  return !takes(reader, '/') || (read_number(reader, &step) && step > 0);
}

static int read_field(Reader *reader, u32 field) {
  int surely_comes = field != DAY_OF_MONTH;
  do {
    u32 first;
    if (!read_member(reader, field, &first)) return 0;
    surely_comes |= first <= LAST_DAY;
  } while (takes(reader, ','));
  return surely_comes;
}

int text_is_cron(Text text) {
  Reader reader = {text.bytes, text.bytes + text.size};
  if (text.size > LONGEST) return 0;
  for (u32 field = 0; field < FIELDS; field++)
    if ((field && !takes(&reader, ' ')) || !read_field(&reader, field)) return 0;
  return reader.at == reader.end;
}
