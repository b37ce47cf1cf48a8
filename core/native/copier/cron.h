#ifndef TWINSTORE_COPIER_CRON_H
#define TWINSTORE_COPIER_CRON_H

#include "copier/program.h"

// Whether a text is a cron expression that twinstore.models.cron would leave as it is: five fields of numbers, of which
// the day of the month admits one that every month has, so that it surely fires. Names of months and days are declined.
int text_is_cron(Text text);

#endif
