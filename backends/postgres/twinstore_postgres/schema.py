def schema_differences(connection, module, role):
    return ()
