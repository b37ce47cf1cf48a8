-- The ledger of copies lives in the schema twinstore. What 0.1.0 kept here stays, because that schema's first
-- migration carries it over as the owner, and nobody else reads it any more: its ranges hold keys of all tenants.

REVOKE ALL ON scheduler.backfill_jobs, scheduler.backfill_ranges FROM :"application_role";
