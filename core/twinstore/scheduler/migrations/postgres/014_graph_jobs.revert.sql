-- Takes 014_graph_jobs back: drops its two tables and its row of the ledger, and nothing else. For psql, as
-- the owner role:
--
--     psql -v ON_ERROR_STOP=1 -f 014_graph_jobs.revert.sql
--
-- It refuses while the tables hold a row, because it cannot see whether that is anywhere else. Where they are
-- (the rows were copied to the other store, and a verification says so), name how many jobs and events those
-- are, as two numbers; a number that has grown since stops it again:
--
--     psql -v ON_ERROR_STOP=1 -v kept_elsewhere=1200,4800 -f 014_graph_jobs.revert.sql
--
-- Repeated, or where 014 was never applied, it does nothing.

\if :{?kept_elsewhere}
\else
    \set kept_elsewhere '0,0'
\endif

BEGIN;
-- No migration runs meanwhile.
SELECT pg_advisory_xact_lock(-3122614535760135641);
-- The owner is bound by row-level security too, and would count nothing.
SELECT set_config('app.tenant_id', 'system', true), set_config('twinstore.kept_elsewhere', :'kept_elsewhere', true);

DO $revert$
DECLARE
    kept text[] := string_to_array(current_setting('twinstore.kept_elsewhere'), ',');
    jobs bigint := 0;
    events bigint := 0;
BEGIN
    IF to_regclass('scheduler.graph_jobs') IS NOT NULL THEN
        -- Before it is counted: nobody adds a row afterwards.
        LOCK TABLE scheduler.graph_jobs IN ACCESS EXCLUSIVE MODE;
        SELECT count(*) INTO jobs FROM scheduler.graph_jobs;
    END IF;
    IF to_regclass('scheduler.graph_job_events') IS NOT NULL THEN
        LOCK TABLE scheduler.graph_job_events IN ACCESS EXCLUSIVE MODE;
        SELECT count(*) INTO events FROM scheduler.graph_job_events;
    END IF;
    IF (jobs, events) <> (0, 0) AND ARRAY[jobs::text, events::text] <> kept THEN
        RAISE EXCEPTION 'scheduler holds % graph jobs and % events, of which % are known to be elsewhere; nothing was changed',
            jobs, events, array_to_string(kept, ' and ')
            USING HINT = 'Copy them to the other store and verify that, stop the writers, and name both numbers: '
                || format('-v kept_elsewhere=%s,%s', jobs, events);
    END IF;
    DROP TABLE IF EXISTS scheduler.graph_job_events;
    DROP TABLE IF EXISTS scheduler.graph_jobs;
    IF to_regclass('scheduler.schema_migrations') IS NOT NULL THEN
        DELETE FROM scheduler.schema_migrations WHERE migration_name = '014_graph_jobs.sql';
    END IF;
END
$revert$;
COMMIT;
