class PostgresBulk:
    def __init__(self, server):
        self._server = server

    def close(self):
        pass
