"""What is made of the changes of tables: landing zones of others."""
