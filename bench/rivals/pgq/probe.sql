SELECT pgq.insert_event('bench', 'probe', $1)
