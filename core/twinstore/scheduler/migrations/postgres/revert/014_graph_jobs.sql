-- Takes 014_graph_jobs back: drops its two tables and its row of the ledger, and nothing else. As the owner:
--
--     psql -v ON_ERROR_STOP=1 -f revert/014_graph_jobs.sql
--
-- It refuses while the tables hold a row, because it cannot see whether that is anywhere else. Where they are
-- (copied to the other store, with a verification that says so), name how many jobs and events they hold; a
-- number that has changed since stops it again:
--
--     psql -v ON_ERROR_STOP=1 -c "SET twinstore.kept_elsewhere = '1200,4800'" -f revert/014_graph_jobs.sql
--
-- Repeated, or where 014 was never applied, it does nothing. A later migration run makes the tables anew.

BEGIN;
-- The lock of migrations: none runs meanwhile.
SELECT pg_advisory_xact_lock(-3122614535760135641);
-- The owner is bound by row-level security too, and would count nothing.
SELECT set_config('app.tenant_id', 'system', true);

DO $revert$
DECLARE
    elsewhere text := coalesce(nullif(current_setting('twinstore.kept_elsewhere', true), ''), '0,0');
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
    IF (jobs, events) <> (0, 0) AND format('%s,%s', jobs, events) <> replace(elsewhere, ' ', '') THEN
        RAISE EXCEPTION 'The schema scheduler holds % graph jobs and % events that may be nowhere else; nothing was changed',
            jobs, events
            USING HINT = format(
                'Stop the writers, copy the rows to the other store, verify that, and say SET twinstore.kept_elsewhere = ''%s,%s''',
                jobs, events);
    END IF;
    DROP TABLE IF EXISTS scheduler.graph_job_events;
    DROP TABLE IF EXISTS scheduler.graph_jobs;
    IF to_regclass('scheduler.schema_migrations') IS NOT NULL THEN
        DELETE FROM scheduler.schema_migrations WHERE migration_name = '014_graph_jobs.sql';
    END IF;
END
$revert$;
COMMIT;
