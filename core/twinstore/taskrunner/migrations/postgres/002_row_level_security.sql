-- Row-level security and grants for the tables of 001.
-- A run belongs to the tenant of the setting app.tenant_id, or the setting is 'system'. A missing or empty
-- setting sees the runs without tenant and no others. Logs, artifacts and approvals follow their run, whose
-- own policy decides which runs the sub-select finds.
-- The setting is read in a sub-select, which the server evaluates once per statement, not once per row. CASE
-- instead of OR: the planner would expect far too few rows, and sort where an index has the order.

ALTER TABLE taskrunner.pack_runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE taskrunner.pack_runs FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON taskrunner.pack_runs;
CREATE POLICY tenant_isolation ON taskrunner.pack_runs
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE tenant_id IS NOT DISTINCT FROM (SELECT nullif(current_setting('app.tenant_id', true), '')) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE tenant_id IS NOT DISTINCT FROM (SELECT nullif(current_setting('app.tenant_id', true), '')) END);

ALTER TABLE taskrunner.pack_run_logs ENABLE ROW LEVEL SECURITY;
ALTER TABLE taskrunner.pack_run_logs FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON taskrunner.pack_run_logs;
CREATE POLICY tenant_isolation ON taskrunner.pack_run_logs
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE EXISTS (SELECT FROM taskrunner.pack_runs AS parent0 WHERE parent0.run_id = taskrunner.pack_run_logs.run_id) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE EXISTS (SELECT FROM taskrunner.pack_runs AS parent0 WHERE parent0.run_id = taskrunner.pack_run_logs.run_id) END);

ALTER TABLE taskrunner.pack_artifacts ENABLE ROW LEVEL SECURITY;
ALTER TABLE taskrunner.pack_artifacts FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON taskrunner.pack_artifacts;
CREATE POLICY tenant_isolation ON taskrunner.pack_artifacts
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE EXISTS (SELECT FROM taskrunner.pack_runs AS parent0 WHERE parent0.run_id = taskrunner.pack_artifacts.run_id) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE EXISTS (SELECT FROM taskrunner.pack_runs AS parent0 WHERE parent0.run_id = taskrunner.pack_artifacts.run_id) END);

ALTER TABLE taskrunner.pack_run_approvals ENABLE ROW LEVEL SECURITY;
ALTER TABLE taskrunner.pack_run_approvals FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON taskrunner.pack_run_approvals;
CREATE POLICY tenant_isolation ON taskrunner.pack_run_approvals
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE EXISTS (SELECT FROM taskrunner.pack_runs AS parent0 WHERE parent0.run_id = taskrunner.pack_run_approvals.run_id) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE EXISTS (SELECT FROM taskrunner.pack_runs AS parent0 WHERE parent0.run_id = taskrunner.pack_run_approvals.run_id) END);

GRANT SELECT, INSERT, UPDATE, DELETE ON taskrunner.pack_runs TO :"application_role";
GRANT SELECT, INSERT, DELETE ON taskrunner.pack_run_logs TO :"application_role";
GRANT SELECT, INSERT, UPDATE, DELETE ON taskrunner.pack_artifacts TO :"application_role";
GRANT SELECT, INSERT, UPDATE, DELETE ON taskrunner.pack_run_approvals TO :"application_role";
GRANT USAGE ON SCHEMA taskrunner TO :"application_role";
GRANT SELECT ON taskrunner.schema_migrations TO :"application_role";
