-- An approval follows its run when it is read. Written, it must also name the tenant of its run: the policy of
-- 002 let a statement of one tenant give its own approvals the tenant of another.
-- No row becomes hidden. Existing approvals whose tenant is not that of their run could no longer be decided,
-- so they are named, and nothing is changed before they are corrected. The repositories write no such row.

DO $check$
DECLARE
    setting TEXT := coalesce(current_setting('app.tenant_id', true), '');
    found TEXT;
BEGIN
    PERFORM set_config('app.tenant_id', 'system', true);
    SELECT string_agg(approval.run_id || '/' || approval.approval_id, ', ') INTO found
      FROM (SELECT a.run_id, a.approval_id
              FROM taskrunner.pack_run_approvals AS a JOIN taskrunner.pack_runs AS r ON r.run_id = a.run_id
             WHERE a.tenant_id IS DISTINCT FROM r.tenant_id
             ORDER BY a.run_id, a.approval_id LIMIT 100) AS approval;
    PERFORM set_config('app.tenant_id', setting, true);
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'these approvals have another tenant than their run, and could not be decided any more '
            '(the first 100): %. If the tenant of the run is right, the owner runs: BEGIN; '
            'SET LOCAL app.tenant_id = ''system''; UPDATE taskrunner.pack_run_approvals AS a '
            'SET tenant_id = r.tenant_id FROM taskrunner.pack_runs AS r WHERE r.run_id = a.run_id '
            'AND a.tenant_id IS DISTINCT FROM r.tenant_id; COMMIT', found;
    END IF;
END
$check$;

ALTER POLICY tenant_isolation ON taskrunner.pack_run_approvals
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE tenant_id IS NOT DISTINCT FROM (SELECT nullif(current_setting('app.tenant_id', true), ''))
                     AND EXISTS (SELECT FROM taskrunner.pack_runs AS parent0
                                  WHERE parent0.run_id = taskrunner.pack_run_approvals.run_id) END);
