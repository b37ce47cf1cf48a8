// What stands where in the documents of an entity: names and places only, for values are shown as stored.
#ifndef TWINSTORE_VERIFIER_DOCUMENT_FORM_H
#define TWINSTORE_VERIFIER_DOCUMENT_FORM_H

#include "verifier/removals.h"

#define MOST_TOPS 256

// Kinds of places. What is no object, list or date where one is expected is declined; null stands anywhere.
enum {
  PLACE_PLAIN,   // anything but dates, which the driver stores in places of instants alone
  PLACE_INSTANT, // a date
  PLACE_LONG,    // an integer of 64 bits
  PLACE_LIST,    // a list of items of one place
  PLACE_OBJECT,  // an object of which some members have places
  PLACE_MAP,     // an object whose members all have one place
  PLACE_FREE,    // anything in free JSON, where a date is shown as the object that stands for it
  PLACE_OBJECT_ID,
  PLACE_UUID,
  PLACE_DECIMAL,
  PLACE_BYTES,
};

enum { IDENTITY_SHOWN, IDENTITY_OF_KEY, IDENTITY_ANY };
// The last two are not shown, and may be of any type that a client gives back; only the last one is counted.
enum { ROLE_FIELD, ROLE_MARKER, ROLE_VERSION, ROLE_SKIPPED, ROLE_IGNORED };

typedef struct {
  Span name;
  u32 place;
} Member;

typedef struct {
  u8 kind;
  u32 item;         // the place of each item or member; what is free is its own
  u32 first, count; // of the members that have places, sorted by name
} Spot;

// A name on the top level, as the content has it: `_id` stands under that of the field.
typedef struct {
  Span name;
  u8 role;
  u32 place;
} Top;

struct DocumentForm {
  u8 *memory;
  Spot *spots;
  Member *members;
  Top *tops; // sorted by name
  u32 *markers; // numbers of the tops, in the order of their shown names
  Span *marker_names;
  Removals removals;
  u32 spot_count, member_count, top_count, marker_count;
  u32 parts, key[SCAN_PARTS];
  u8 is_number[SCAN_PARTS];
  u8 identity, tenant_may_lack;
  i32 identity_top, tenant, expires, version; // -1 where there is none
};

#endif
